#pragma once

#include <cstddef>

namespace meshplan {

/// Fills fresh memory with zeros, so that nobody waits for its pages later. All of them are mapped
/// at once first, large ones where the kernel has them: mapped one by one, at the first write to
/// each, they take a hundred times as long as a copy in some virtual machines.
/// @param memory  begins a page
void touch_pages(void* memory, std::size_t bytes) noexcept;

}  // namespace meshplan
