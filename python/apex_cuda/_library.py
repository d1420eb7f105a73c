"""Whether ``libapex.so`` is loaded into this process, as ``apex run`` loads it."""

import os
from typing import Any, Optional


def session() -> Optional[str]:
    """The folder of the session that this process is recorded in, if ``apex run`` named one."""
    return os.environ.get("APEX_SESSION") or None


def loaded() -> Any:
    """The library, by which its functions are called; ``None`` if it is not there, or records
    nothing."""
    if session() is None or os.environ.get("APEX_DISABLE") == "1":
        return None
    import ctypes

    try:
        # The library stands in for the driver, by the driver's name.
        library = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None
    return library if hasattr(library, "InitializeInjectionNvtx2") else None
