#pragma once

#include <cstddef>

namespace meshplan {

/// Has the kernel map all pages of fresh memory for writing at once, large ones where it has them.
/// Mapped one by one, at the first write to each, they take a hundred times as long as a copy in
/// some virtual machines. Contents stay as they are.
/// @param memory  begins a page  @returns false, and has done nothing, where the system cannot
bool map_pages(void* memory, std::size_t bytes) noexcept;

}  // namespace meshplan
