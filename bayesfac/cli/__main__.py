"""`python -m bayesfac.cli` is `bayesfac`."""

import sys

from bayesfac.cli import main

sys.exit(main())
