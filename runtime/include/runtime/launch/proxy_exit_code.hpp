// What MPI's own launcher makes of a rank's exit code.
#pragma once

namespace meshplan::runtime {

/// Under MPI's proxy (hydra_pmi_proxy), as the last thing that a rank does before it ends with an
/// exit code that mpiexec shall end with, too; elsewhere nothing.
///
/// The proxies of MPICH before 4.1 note 0 for every rank to which they have passed a signal on,
/// unless they collect the rank while its stdout or stderr is still open (src/pm/hydra/pm/pmiserv/
/// pmip.c of 4.0.2: `forced_cleanup` in the second of its two loops): of a job of one rank 0 is all
/// that mpiexec hears, of a larger one sometimes. So a child stays behind that keeps both open
/// until the rank has ended, wakes the proxy by closing stdout, and closes stderr once the rank was
/// collected, or after 2 s. Calls nothing that a signal handler must not.
void let_proxy_see_exit_code();

}  // namespace meshplan::runtime
