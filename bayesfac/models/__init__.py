"""One file per published method; importing this registers them all."""

from bayesfac.models import bpmf as bpmf
from bayesfac.models import mvplsa as mvplsa
from bayesfac.models import plsa as plsa
from bayesfac.models import pmf as pmf
