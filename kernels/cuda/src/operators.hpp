// The launchers of the memory-bound operations, one per operation of kernels/include; defined in
// the .cu file of the operation's header. Each checks what it is given and enqueues on
// context.stream.
#pragma once

#include "context.hpp"
#include "kernels/backend.hpp"

namespace meshplan::kernels::cuda {

void enqueue(const Context& context, const Add& op);
void enqueue(const Context& context, const Accumulate& op);
void enqueue(const Context& context, const Scale& op);
void enqueue(const Context& context, const Fill& op);
void enqueue(const Context& context, const Convert& op);

}  // namespace meshplan::kernels::cuda
