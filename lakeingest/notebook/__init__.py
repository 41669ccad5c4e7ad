"""What notebooks need besides `Pipeline`: a place to work, and runbooks as pages. Live displays are here, too.

This package needs Jupyter (`pip install 'lakeingest[notebook]'`). A run without a notebook imports none of it.
"""

from lakeingest.notebook.beside import Beside
from lakeingest.notebook.replay import replayed
from lakeingest.notebook.runbook import Runbook, runbook
from lakeingest.notebook.workspace import Workspace

__all__ = ["Beside", "Runbook", "Workspace", "replayed", "runbook"]
