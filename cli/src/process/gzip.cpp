#include "process/gzip.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
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

}  // namespace

bool is_gzip(std::string_view text) {
  return text.starts_with("\x1f\x8b");
}

std::string gunzip(std::string_view packed, const std::string& file, std::size_t most_bytes) {
  ZlibStream stream(inflateEnd);
  if (inflateInit2(&*stream, kGzipWindow) != Z_OK) throw std::bad_alloc();
  std::string text;
  std::string_view rest = packed;
  give_input(*stream, rest);
  while (true) {
    if ((*stream).avail_in == 0 && !rest.empty()) give_input(*stream, rest);
    const int code =
        append_block(*stream, text, [](z_stream& state) { return inflate(&state, Z_NO_FLUSH); });
    if (text.size() > most_bytes)
      fail_to_unpack(file, fmt::format("unpacks to more than {} bytes, the limit", most_bytes));
    if (code == Z_STREAM_END) {
      if ((*stream).avail_in == 0 && rest.empty()) return text;
      inflateReset(&*stream);  // files that were put one after another
      continue;
    }
    if (code == Z_BUF_ERROR ||
        (code == Z_OK && (*stream).avail_in == 0 && rest.empty() && (*stream).avail_out > 0))
      fail_to_unpack(file, fmt::format("ends after {} bytes, before its data do", packed.size()));
    if (code != Z_OK)
      fail_to_unpack(file, (*stream).msg != nullptr ? (*stream).msg : "damaged data");
  }
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

std::string read_unpacked_file(const std::string& path) {
  std::string text = read_file(path);
  return is_gzip(text) ? gunzip(text, path) : text;
}

void write_packed_file(const std::string& path, std::string_view text) {
  if (path.ends_with(".gz"))
    write_file(path, gzip(text));
  else
    write_file(path, text);
}

}  // namespace meshplan::cli
