"""BFCL's own checker, from its unpacked wheel, as a judge to agree with.

Importing it would pull in every vendor's client; the one table that does so is replaced by an empty one.
"""

import sys
import types
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MODEL = "stand-in"


def official_judge(wheel: Path, folder: Path) -> Callable[[Sequence[Any], Any, Any, str], str]:
    """Return the official verdict as a function of calls, functions, answers and category; "" if right, else the error type."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    stub = types.ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = {MODEL: types.SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
    sys.modules[stub.__name__] = stub
    sys.path.insert(0, str(folder))
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    def verdict(calls: Sequence[Any], functions: Any, answers: Any, category: str) -> str:
        output = [{name: dict(arguments)} for name, arguments in calls]
        result = ast_checker(functions, output, list(answers), Language.PYTHON, category, MODEL)
        return "" if result["valid"] else str(result["error_type"])

    return verdict
