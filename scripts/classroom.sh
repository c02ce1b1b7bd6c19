#!/usr/bin/env bash
# Builds the classroom: build/classroom/classroom.html, one file with the simulator and the planner in it.
# Installs Debian's compiler and libraries for WebAssembly where they are missing; does nothing that is already done.
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/setup.sh" classroom
