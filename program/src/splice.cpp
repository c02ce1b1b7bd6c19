#include "splice.hpp"

#include <algorithm>

#include "core/index.hpp"

namespace meshplan::program {

void splice(std::vector<OperationInstance>& instances, std::vector<Addition> additions) {
  std::ranges::stable_sort(additions, {}, &Addition::first);
  std::size_t from = instances.size();  // behind what still has to move
  std::size_t to = from + additions.size();
  instances.resize(to);
  while (!additions.empty()) {
    auto& [position, added] = additions.back();
    while (from > at(position)) instances[--to] = instances[--from];
    instances[--to] = added;
    additions.pop_back();
  }
}

}  // namespace meshplan::program
