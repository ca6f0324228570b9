"""Every sentence that a student reads from ``grader`` passes through ``_``, so that it can be translated.

The English text stands in the code and is the key; a language's catalogue is
``grader/messages/<language>/LC_MESSAGES/grader.mo`` (gettext). ``TILELAB_LANG`` chooses it, English is the
fallback. Values are filled in after translation: ``_("{count} elements are wrong").format(count=3)``.
"""

import gettext
import os
from pathlib import Path

language = os.environ.get("TILELAB_LANG", "en")

_ = gettext.translation("grader", Path(__file__).parent, languages=[language], fallback=True).gettext
