// Items of which none covers another, found among many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace meshplan {

/// @tparam Covers  (more, less): has `more` of everything at least as much as `less`? A partial
/// order
template <class Item, class Covers>
class Uncovered {
 public:
  /// Keeps the item unless another covers it; those that it covers go.
  void add(const Item& item) {
    // Where items come round again, what covers the next one comes after what covered the last.
    const auto is_covering = [&](const Item& other) { return Covers{}(other, item); };
    const auto after = all_.begin() + next_;
    auto found = std::find_if(after, all_.end(), is_covering);
    if (found == all_.end()) {
      found = std::find_if(all_.begin(), after, is_covering);
      if (found == after) found = all_.end();
    }
    if (found != all_.end()) {
      next_ = found + 1 - all_.begin();
      return;
    }
    std::erase_if(all_, [&](const Item& other) { return Covers{}(item, other); });
    all_.push_back(item);
    next_ = std::ssize(all_);
  }

  const std::vector<Item>& all() const { return all_; }
  std::vector<Item> take() { return std::move(all_); }

 private:
  std::vector<Item> all_;
  std::ptrdiff_t next_ = 0;
};

}  // namespace meshplan
