"""Exit status 0 if JupyterLab answers on the container's port. Its /api needs no token and tells nothing."""

import os
import sys
import urllib.error
import urllib.request

address = f"http://127.0.0.1:{os.environ.get('PORT') or 8888}/api"
try:
    with urllib.request.urlopen(address, timeout=4) as answer:
        sys.exit(0 if answer.status == 200 else f"{address} answers {answer.status}")
except urllib.error.URLError as error:
    sys.exit(f"{address} doesn't answer: {error}")
