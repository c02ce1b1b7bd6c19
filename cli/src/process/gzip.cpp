#include "process/gzip.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <utility>
#include <zlib.h>

#include "core/error.hpp"
#include "process/files.hpp"

namespace meshplan::cli {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib's largest window, with gzip's header
constexpr std::size_t kBlockBytes = std::size_t{1} << 18;

/// zlib's state of one direction, ended when it goes.
class ZlibStream {
 public:
  using End = int (*)(z_stream*);
  explicit ZlibStream(End end) : end_(end) {}
  ZlibStream(const ZlibStream&) = delete;
  ZlibStream& operator=(const ZlibStream&) = delete;
  ~ZlibStream() { end_(&state_); }
  z_stream& operator*() { return state_; }

 private:
  z_stream state_{};
  End end_;
};

/// zlib counts in 32 bits, and does not write to its input.
void give_input(z_stream& stream, std::string_view& rest) {
  const std::size_t most = std::numeric_limits<uInt>::max();
  const std::size_t size = std::min(rest.size(), most);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));  // NOLINT
  stream.avail_in = static_cast<uInt>(size);
  rest.remove_prefix(size);
}

/// Runs `step` into a block that is appended to `out`. @returns zlib's code
template <class Step>
int append_block(z_stream& stream, std::string& out, Step step) {
  const std::size_t before = out.size();
  out.resize(before + kBlockBytes);
  stream.next_out = reinterpret_cast<Bytef*>(out.data() + before);
  stream.avail_out = static_cast<uInt>(kBlockBytes);
  const int code = step(stream);
  out.resize(out.size() - stream.avail_out);
  return code;
}

[[noreturn]] void fail_to_unpack(const std::string& file, std::string_view why) {
  throw ConfigError(fmt::format("{}: gzip: {}", file, why));
}

/// Unpacks as much of what comes packed as a block holds.
class Unpacker {
 public:
  Unpacker(TextBlocks packed, std::string file, std::size_t most_bytes)
      : packed_(std::move(packed)), file_(std::move(file)), most_bytes_(most_bytes) {
    if (inflateInit2(&*stream_, kGzipWindow) != Z_OK) throw std::bad_alloc();
  }

  std::string_view next() {
    block_.clear();
    while (block_.empty() && !ended_) unpack();
    bytes_ += block_.size();
    if (bytes_ > most_bytes_)
      fail_to_unpack(file_, fmt::format("unpacks to more than {} bytes, the limit", most_bytes_));
    return block_;
  }

 private:
  /// Is there more of the packed text?
  bool has_input() {
    z_stream& stream = *stream_;
    if (stream.avail_in > 0) return true;
    if (rest_.empty()) rest_ = packed_();
    packed_bytes_ += std::min<std::size_t>(rest_.size(), std::numeric_limits<uInt>::max());
    if (!rest_.empty()) give_input(stream, rest_);
    return stream.avail_in > 0;
  }

  void unpack() {
    const bool has_more = has_input();
    const int code =
        append_block(*stream_, block_, [](z_stream& state) { return inflate(&state, Z_NO_FLUSH); });
    if (code == Z_STREAM_END) {
      ended_ = !has_input();
      if (!ended_) inflateReset(&*stream_);  // files that were put one after another
    } else if (code == Z_BUF_ERROR || (code == Z_OK && !has_more && (*stream_).avail_out > 0)) {
      fail_to_unpack(file_, fmt::format("ends after {} bytes, before its data do", packed_bytes_));
    } else if (code != Z_OK) {
      fail_to_unpack(file_, (*stream_).msg != nullptr ? (*stream_).msg : "damaged data");
    }
  }

  TextBlocks packed_;
  std::string file_;
  std::size_t most_bytes_;
  ZlibStream stream_{inflateEnd};
  std::string_view rest_;  // of the packed block
  std::size_t packed_bytes_ = 0;
  std::string block_;
  std::size_t bytes_ = 0;
  bool ended_ = false;
};

}  // namespace

bool is_gzip(std::string_view text) {
  return text.starts_with("\x1f\x8b");
}

TextBlocks gunzip_blocks(TextBlocks packed, const std::string& file, std::size_t most_bytes) {
  return [unpacker = std::make_shared<Unpacker>(std::move(packed), file, most_bytes)] {
    return unpacker->next();
  };
}

std::string gunzip(std::string_view packed, const std::string& file, std::size_t most_bytes) {
  const TextBlocks blocks = gunzip_blocks(one_block(packed), file, most_bytes);
  std::string text;
  for (std::string_view block = blocks(); !block.empty(); block = blocks()) text += block;
  return text;
}

std::string gzip(std::string_view text) {
  ZlibStream stream(deflateEnd);
  if (deflateInit2(&*stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  std::string packed;
  std::string_view rest = text;
  int code = Z_OK;
  while (code != Z_STREAM_END) {
    if ((*stream).avail_in == 0) give_input(*stream, rest);
    const int flush = rest.empty() ? Z_FINISH : Z_NO_FLUSH;
    code = append_block(*stream, packed, [&](z_stream& state) { return deflate(&state, flush); });
  }
  return packed;
}

TextBlocks unpacked_blocks(const std::string& path) {
  const TextBlocks blocks = file_blocks(path, kMostUnpackedBytes);
  std::string_view first = blocks();
  TextBlocks all = [first, blocks]() mutable {
    return first.empty() ? blocks() : std::exchange(first, {});
  };
  return is_gzip(first) ? gunzip_blocks(std::move(all), path) : all;
}

void write_packed_file(const std::string& path, std::string_view text) {
  if (path.ends_with(".gz"))
    write_file(path, gzip(text));
  else
    write_file(path, text);
}

}  // namespace meshplan::cli
