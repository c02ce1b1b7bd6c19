#!/bin/sh
# Objects compiled for one instruction set may share no mergeable symbol with the rest of the program:
# the linker would keep any copy, also one that the CPU at hand cannot run.
# Usage: isa_symbols_test.sh NM NAMESPACE OBJECT...
nm=$1
namespace=$2
shift 2
shared=$("$nm" -C "$@" | grep -E ' [WVuiBbDdC] ' | grep -v "::$namespace::")
if [ -n "$shared" ]; then
  echo "mergeable symbols or writable data outside of $namespace:"
  echo "$shared"
  exit 1
fi
