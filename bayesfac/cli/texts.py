"""The help of the commands, and their examples."""

ABOUT = """\
Matrix factorizations as point estimates (the paper's solver) and as posteriors (NumPyro).
Fit both on the same data, and compare their errors and their uncertainty."""

EXAMPLES = """\
examples:
  bayesfac demo                                    compare a point estimate and a posterior
  bayesfac methods                                 list methods and their engines
  bayesfac data split movielens-100k --out ml      write train.csv and test.csv
  bayesfac auto ml/train.csv --levels 1:5          choose a method, and fit it
  bayesfac fit bpmf ml/train.csv --levels 1:5 --out point
  bayesfac fit bpmf ml/train.csv --levels 1:5 --engine gibbs --out draws
  bayesfac compare point=point Gibbs=draws --test ml/test.csv --html report.html
  bayesfac predict draws ml/test.csv --out predictions.csv
  bayesfac recommend draws --users 1 2 --exclude ml/train.csv
  bayesfac explain draws ml/train.csv 1 50         what the ratings of user 1 add to item 50
  bayesfac sbc bpmf --engine gibbs                 check the sampler by simulation

Each command has its own --help. Results go to standard output, progress and errors to standard
error. Exit codes: 0 done; 1 diagnostics failed (--strict, sbc); 2 bad usage or input;
130 interrupted (Ctrl-C), also if a partial fit was saved.
Data sets are stored in the folder BAYESFAC_DATA, or in the cache folder of your system."""

DATA_HELP = """\
DATA is a file or the name of a data set (bayesfac data list).
  .csv .tsv .txt   one rating per line: user,item,rating; comma, semicolon, tab, "::" or blanks;
                   also .dat, .csv.gz and .zip (other signs: --separator). A header may have
                   usual names (userId, movie, stars); for other names pass --user, --item,
                   --rating. Without a header the first three columns are read.
                   "NA" is a label, not a missing value.
  .parquet         the same columns (needs pyarrow: pip install 'bayesfac[datasets]')
  .npz             arrays user, item, rating; or one matrix (NaN is missing; a scipy sparse
                   matrix from save_npz: stored entries are observed)
  For methods on views: .npz with view_NAME matrices or one matrix, or a long table
  row,view,feature,value."""

DEMO = """\
Load the data set uneven-ratings (made-up users, most of whom rated only a few items), hide all
but three ratings of forty items, and fit BPMF in three ways: as a point estimate, by a short run
(Quick) and by a long one (Gibbs). Write a page that compares the fits: the hidden ratings show what
the point did not know. This needs no network and takes a minute or two."""

FIT = f"""\
Fit METHOD to DATA, print its diagnostics, and save the fit as a folder.

{DATA_HELP}"""

FIT_EXAMPLES = """\
examples:
  bayesfac fit pmf ratings.csv --set n_components=16
  bayesfac fit bpmf movielens-100k --engine gibbs --warmup 200 --draws 400 --chains 2
  bayesfac fit bpmf stars.csv --columns who,film,stars --levels 1:5
  bayesfac fit pmf ratings.parquet --engine svi --steps 5000 --with guide=lowrank
  bayesfac fit mvplsa digits --set n_components=10 n_topics=15 --out runs/digits
  bayesfac fit cmf ratings.csv --matrix tags=user,tag,tags.csv --engine gibbs
  bayesfac fit bpmf ratings.csv --engine gibbs --processes 2 --with folder=run
  bayesfac fit bpmf ratings.parquet --engine gibbs --processes 2 --large

With --large, DATA is a .parquet file, a folder of such files, or a folder with user.npy, item.npy
and rating.npy. It is read in blocks, so it need not fit in memory.
The message about an unknown method, engine or setting suggests the nearest name."""

AUTO = f"""\
Choose a method and its number of components by the scores of held-out cells, fit it to all of
DATA, print a table of all candidates, and save the fit as a folder.

{DATA_HELP}"""

AUTO_EXAMPLES = """\
examples:
  bayesfac auto ratings.csv --levels 1:5
  bayesfac auto movielens-100k --seconds 600 --keep tried --out best      continues a killed run
  bayesfac auto ratings.csv --methods pmf,bpmf --components 5,10,20"""

WORKER = """\
Run cells (fits) of bf.evaluate(..., folder=FOLDER, shared=True) on this machine, which must have
access to FOLDER. The worker runs cells that are not finished and that no other process runs, until
all are finished. Any number of workers may run, and each may be killed: its cell is run again after
two minutes, or at once on the same machine. No code in the folder is executed: the plan there has
only names of methods and numbers."""

WORKER_EXAMPLES = """\
examples:
  bayesfac worker /shared/run                                    on any machine
  sbatch --array=1-20 --wrap "bayesfac worker /shared/run"       on a Slurm cluster"""

COMPARE = f"""\
Score saved fits on the same held-out DATA: errors, log score, CRPS, coverage of intervals. With
--levels there are also scores for levels: share of wrong levels, ordinal log score, RPS.

{DATA_HELP}"""

COMPARE_EXAMPLES = """\
example:
  bayesfac compare point=runs/point Gibbs=runs/gibbs --test test.csv --html report.html"""

PREDICT = """\
Predict the rating of each pair (user, item) of DATA with a saved fit: mean, standard deviation, an
interval, and whether the user or item is new (flagged: predicted from the prior). DATA is a text or
.parquet file with columns user and item; a column of ratings is not needed and not read. Without
--out the table goes to standard output as CSV."""

RECOMMEND = """\
Print the best items of each user with a saved fit of ratings, and the probability that each is
among the user's N best. A fit does not contain its data. Give the training data with --exclude;
otherwise items that a user has rated are recommended again. DATA is a data set, or a file with
columns user and item; a column of ratings is not needed and not read."""

RECOMMEND_EXAMPLES = """\
examples:
  bayesfac recommend runs/gibbs --users ann bob --exclude train.csv
  bayesfac recommend runs/gibbs --n 20 --by lower --exclude train.csv --out top.csv"""

EXPLAIN = """\
Print what each rating of the user WHO, and what else, adds to the rating that a saved fit expects
of the item WHICH. The parts add up to the prediction. DATA are the training data, because a fit
does not contain them. Example: bayesfac explain runs/gibbs train.csv ann Alien"""

REPORT = """\
Diagnose one saved fit (R-hat and ESS of identified quantities, a verdict in words); with --html
also write an HTML report."""

SBC = """\
Simulation-based calibration: draw parameters and data from METHOD's joint, run the engine on each
data set, and compute the rank of the true value of every identified quantity among its draws. The
ranks of a correct sampler are uniform; the exit code is 1 if they are not. The data have the size
of the method's small example."""

SBC_EXAMPLES = """\
examples:
  bayesfac sbc bpmf
  bayesfac sbc gibbs_mmmf --set cost=0.1           a weaker loss, closer to a likelihood
  bayesfac sbc pmf --engine svi --with guide=multivariate --json pmf.json
  bayesfac sbc all --engine nuts --replications 200

If the model of a method does not generate data, the command prints why, with exit code 0."""

DOCTOR = """\
Print what a report of a bug must say: versions, cores and threads, environment variables, whether
the kernels run inside XLA, precision, caches and their size, a benchmark of one second, and known
conflicts. The name of your home folder is left out. The exit code is 1 if there is a conflict."""

WARM = f"""\
Compile what a first call needs, and keep it on disk: first the kernels, which serve data of any
size. If DATA is given, also the programs of some methods for data of this size, by a short fit.

{DATA_HELP}"""

WARM_EXAMPLES = """\
examples:
  bayesfac warm                                    half a minute, once
  bayesfac warm ratings.csv --levels 1:5 --methods pmf,bpmf,ordinal_mf"""

NEW_METHOD = """\
Write a small method that runs (bayesfac/models/FAMILY/NAME.py), an entry in references.bib, and a
test of one sweep and one claim. This works in a source checkout only."""

BENCH = "Run the benchmark benchmarks/NAME.py of a source checkout, or all of them."

SPLIT = f"""\
Split ratings into OUT/train.csv and OUT/test.csv: a random share of them is held out for the test.

{DATA_HELP}"""
