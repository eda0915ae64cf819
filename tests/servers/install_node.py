"""Install the Node.js MCP servers of package.json into node_modules beside it: python tests/servers/install_node.py"""

import os
import subprocess
import sys
from pathlib import Path

from node import HERE, npm_command


def main() -> int:
    npm = npm_command()
    # No install scripts: the servers have none, and what they depend on need not run anything here.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    path = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", os.defpath)])  # npm looks for node there
    done = subprocess.run([*npm, "install", *options], cwd=HERE, env=os.environ | {"PATH": path}, timeout=600, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
