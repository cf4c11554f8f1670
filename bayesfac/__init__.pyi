"""The public names. `__init__.py` reads this list and imports each name on first use."""

from bayesfac import comparators as comparators
from bayesfac import datasets as datasets
from bayesfac import metrics as metrics
from bayesfac import multilabel as multilabel
from bayesfac import ranks as ranks
from bayesfac import references as references
from bayesfac import sklearn as sklearn
from bayesfac import split as split
from bayesfac import testing as testing
from bayesfac.api import Fit as Fit
from bayesfac.api import compare as compare
from bayesfac.api import fit as fit
from bayesfac.api import load as load
from bayesfac.automatic import auto as auto
from bayesfac.core.data.counts import Counts as Counts
from bayesfac.core.data.ratings import Ratings as Ratings
from bayesfac.core.data.tasks import Tasks as Tasks
from bayesfac.core.data.tensor import Tensor as Tensor
from bayesfac.core.data.views import Views as Views
from bayesfac.core.errors import ConvergenceWarning as ConvergenceWarning
from bayesfac.core.errors import DataWarning as DataWarning
from bayesfac.core.method import Permutation as Permutation
from bayesfac.core.method import Rotation as Rotation
from bayesfac.engine_costs import engines as engines
from bayesfac.evaluation import Tuned as Tuned
from bayesfac.evaluation import evaluate as evaluate
from bayesfac.inference import LBFGS as LBFGS
from bayesfac.inference import MAP as MAP
from bayesfac.inference import NUTS as NUTS
from bayesfac.inference import SVI as SVI
from bayesfac.inference import VB as VB
from bayesfac.inference import FixedPoint as FixedPoint
from bayesfac.inference import Gibbs as Gibbs
from bayesfac.inference import Quick as Quick
from bayesfac.listing import methods as methods
from bayesfac.membership import clusters as clusters
from bayesfac.membership import columns_on as columns_on
from bayesfac.membership import together as together
from bayesfac.penalty_path import path as path
from bayesfac.report.diagnostics.align import align as align
from bayesfac.report.diagnostics.loo_compare import loo_compare as loo_compare
from bayesfac.report.diagnostics.prior_predictive import prior_predictive as prior_predictive
from bayesfac.simulation import Calibration as Calibration
from bayesfac.simulation import sbc as sbc

__version__: str
