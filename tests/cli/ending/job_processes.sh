# The processes of a job, for tests of how it ends; to be sourced after expect.sh.

# The ranks proper, started by MPICH's proxy; their guardians have the same arguments.
rank_processes() {
  for pid in $(ranks); do
    parent=$(ps -o ppid= -p "$pid" 2>/dev/null | tr -d ' ')  # nothing if it has just ended
    [ "$(ps -o comm= -p "${parent:-0}" 2>/dev/null)" = hydra_pmi_proxy ] && echo "$pid"
  done
}

# mpiexec_of JOB: the one that it has started
mpiexec_of() { pgrep -P "$1" mpiexec; }

wait_until_gone() {
  for _ in $(seq 600); do
    [ -z "$(ranks)" ] && return
    sleep 0.1
  done
}
