"""One file per published method; importing this registers them all."""

from bayesfac.models import attitude as attitude
from bayesfac.models import bmmmf as bmmmf
from bayesfac.models import bpmf as bpmf
from bayesfac.models import concat_ltm as concat_ltm
from bayesfac.models import emmmf as emmmf
from bayesfac.models import gibbs_mmmf as gibbs_mmmf
from bayesfac.models import heres as heres
from bayesfac.models import himls as himls
from bayesfac.models import himlsd as himlsd
from bayesfac.models import hmf as hmf
from bayesfac.models import ipmmmf as ipmmmf
from bayesfac.models import lsa_mml as lsa_mml
from bayesfac.models import ltm as ltm
from bayesfac.models import mggm as mggm
from bayesfac.models import mmmf as mmmf
from bayesfac.models import mvplsa as mvplsa
from bayesfac.models import ordinal_mf as ordinal_mf
from bayesfac.models import plsa as plsa
from bayesfac.models import pmf as pmf
from bayesfac.models import pmmmf as pmmmf
from bayesfac.models import urp as urp
