"""The engines, which run any Method and know no method by name."""

from bayesfac.inference.fixed_point import FixedPoint as FixedPoint
from bayesfac.inference.gibbs import Gibbs as Gibbs
from bayesfac.inference.gradient import LBFGS as LBFGS
from bayesfac.inference.nuts import NUTS as NUTS
from bayesfac.inference.svi import MAP as MAP
from bayesfac.inference.svi import SVI as SVI

ENGINES = {kind.__name__: kind for kind in (FixedPoint, LBFGS, MAP, SVI, NUTS, Gibbs)}
