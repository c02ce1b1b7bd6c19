#include "weights/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include "core/json_fields.hpp"
#include "core/limits.hpp"
#include "core/line.hpp"

namespace meshplan::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::int64_t kLengthBytes = 8;
// The limit of Hugging Face's own reader: a wrong length must not become a huge allocation.
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

struct NamedDType {
  std::string_view name;
  int bits;
  std::optional<DType> dtype;
};

constexpr std::array<NamedDType, 14> kDTypes = {{{"F64", 64, DType::F64},
                                                 {"F32", 32, DType::F32},
                                                 {"F16", 16, DType::F16},
                                                 {"BF16", 16, DType::BF16},
                                                 {"I64", 64, DType::I64},
                                                 {"I32", 32, DType::I32},
                                                 {"I16", 16, std::nullopt},
                                                 {"I8", 8, DType::I8},
                                                 {"U64", 64, std::nullopt},
                                                 {"U32", 32, std::nullopt},
                                                 {"U16", 16, std::nullopt},
                                                 {"U8", 8, DType::U8},
                                                 {"BOOL", 8, std::nullopt},
                                                 {"F8_E4M3", 8, std::nullopt}}};

const NamedDType* find_dtype(std::string_view name) {
  if (name == "F8_E5M2") name = "F8_E4M3";  // of equal size
  const auto* found = std::ranges::find(kDTypes, name, &NamedDType::name);
  return found == kDTypes.end() ? nullptr : found;
}

std::string_view file_name_of(DType dtype) {
  for (const NamedDType& known : kDTypes)
    if (known.dtype == dtype) return known.name;
  throw InvariantError("a dtype without a name in safetensors");
}

class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::span<const std::byte> file) : path_(path) {
    const auto size = static_cast<std::int64_t>(file.size());
    if (size < kLengthBytes)
      fail(fmt::format("{} bytes are too few for a header length of {}; the file is truncated",
                       size, kLengthBytes));
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    if (length > static_cast<std::uint64_t>(kMaxHeaderBytes))
      fail(
          fmt::format("the header claims {} bytes, more than the format's {}; this is no "
                      "safetensors file",
                      length, kMaxHeaderBytes));
    const auto header = static_cast<std::int64_t>(length);
    if (header > size - kLengthBytes)
      fail(fmt::format("the header claims {} bytes, but {} follow; the file is truncated", header,
                       size - kLengthBytes));
    const auto* text = reinterpret_cast<const char*>(file.data()) + kLengthBytes;
    json_ = parse_json({text, static_cast<std::size_t>(header)}, path + ": header");
    if (!json_.is_object()) fail("the header is no JSON object");
    header_ = file.first(static_cast<std::size_t>(kLengthBytes + header));
    data_ = file.subspan(header_.size());
  }

  std::span<const std::byte> header() const { return header_; }

  std::map<std::string, std::string> metadata() const {
    std::map<std::string, std::string> metadata;
    const auto found = json_.find("__metadata__");
    if (found == json_.end()) return metadata;
    if (!found->is_object()) fail("__metadata__: expected an object");
    for (const auto& [key, value] : found->items()) {
      if (!value.is_string()) fail(fmt::format("__metadata__.{}: expected a string", key));
      metadata[key] = value.get<std::string>();
    }
    return metadata;
  }

  std::map<std::string, SafeTensor> tensors() {
    std::map<std::string, SafeTensor> tensors;
    for (const auto& [name, entry] : json_.items()) {
      require_line(name, fmt::format("{}: the name of a tensor", path_), limits::kNameBytes);
      if (name != "__metadata__") tensors[name] = tensor(name, entry);
    }
    check_cover();
    return tensors;
  }

 private:
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::string name;
  };

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format("{}: {}", path_, what));
  }

  std::int64_t natural(const Json& value, const std::string& where) const {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      fail(fmt::format("{}: expected a whole number of at least 0, got {}", where, quoted(value)));
    return value.get<std::int64_t>();
  }

  SafeTensor tensor(const std::string& name, const Json& entry) {
    if (!entry.is_object()) fail(fmt::format("{}: expected an object", name));
    for (const auto& [key, value] : entry.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        fail(fmt::format("{}: {}", name,
                         unknown_name_message("key", key, {"dtype", "shape", "data_offsets"})));
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!entry.contains(key)) fail(fmt::format("{}: {} is missing", name, key));
    SafeTensor tensor;
    const Json& dtype = entry["dtype"];
    const NamedDType* known = dtype.is_string() ? find_dtype(dtype.get<std::string>()) : nullptr;
    if (known == nullptr) fail(fmt::format("{}: dtype: unknown dtype {}", name, quoted(dtype)));
    tensor.dtype_name = dtype.get<std::string>();
    std::int64_t bytes = known->bits / 8;
    if (!entry["shape"].is_array()) fail(fmt::format("{}: shape: expected a list", name));
    for (const Json& size : entry["shape"]) {
      tensor.shape.push_back(natural(size, name + ": shape"));
      if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes))
        fail(fmt::format("{}: shape {}: more bytes than 64 bits count", name,
                         entry["shape"].dump()));
    }
    tensor.data = range(name, entry["data_offsets"], bytes, entry);
    return tensor;
  }

  std::span<const std::byte> range(const std::string& name, const Json& offsets, std::int64_t bytes,
                                   const Json& entry) {
    if (!offsets.is_array() || offsets.size() != 2)
      fail(fmt::format("{}: data_offsets: expected [begin, end], got {}", name, quoted(offsets)));
    const std::int64_t begin = natural(offsets[0], name + ": data_offsets");
    const std::int64_t end = natural(offsets[1], name + ": data_offsets");
    if (end < begin || end - begin != bytes)
      fail(fmt::format("{}: data_offsets [{}, {}] are {} bytes, but {} of shape {} take {}", name,
                       begin, end, end - begin, entry["dtype"].get<std::string>(),
                       entry["shape"].dump(), bytes));
    if (end > std::ssize(data_))
      fail(fmt::format("{}: its data ends at byte {}, but the file holds {}; the file is truncated",
                       name, end, data_.size()));
    ranges_.push_back({begin, end, name});
    return data_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
  }

  void check_cover() {
    std::ranges::sort(ranges_, [](const Range& a, const Range& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::int64_t end = 0;
    std::string last = "the header";
    for (const Range& range : ranges_) {
      if (range.begin < end) fail(fmt::format("{} and {} overlap", last, range.name));
      if (range.begin > end)
        fail(fmt::format("{} bytes between {} and {} belong to no tensor", range.begin - end, last,
                         range.name));
      end = range.end;
      last = range.name;
    }
    if (end != std::ssize(data_))
      fail(fmt::format("{} bytes after {} belong to no tensor", std::ssize(data_) - end, last));
  }

  const std::string& path_;
  Json json_;
  std::span<const std::byte> header_;
  std::span<const std::byte> data_;
  std::vector<Range> ranges_;
};

std::string header_of(std::span<const SafeTensorSpec> specs,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const SafeTensorSpec& spec : specs) {
    require_invariant(!header.contains(spec.name), "two tensors of one name in a file");
    header[spec.name] = {{"dtype", file_name_of(spec.dtype)},
                         {"shape", spec.shape},
                         {"data_offsets", {offset, offset + spec.bytes()}}};
    offset += spec.bytes();
  }
  std::string text = header.dump();
  constexpr std::size_t kAligned = 8;  // so that mapped data is aligned; the format allows spaces
  text.append((kAligned - text.size() % kAligned) % kAligned, ' ');
  return text;
}

}  // namespace

DType SafeTensor::dtype() const {
  const NamedDType* known = find_dtype(dtype_name);
  if (known == nullptr || !known->dtype || known->name != dtype_name)
    throw ConfigError(fmt::format(
        "dtype {} is not supported; convert the weights to F32, F16 or BF16", dtype_name));
  return *known->dtype;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(path) {
  HeaderParser parser(path_, file_.bytes());
  header_ = parser.header();
  metadata_ = parser.metadata();
  tensors_ = parser.tensors();
}

const SafeTensor& SafetensorsFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : tensors_) names.push_back(known);
  throw ConfigError(fmt::format("{}: holds no tensor '{}'; nearest: '{}'", path_, name,
                                nearest_choice(name, names)));
}

std::int64_t SafeTensorSpec::bytes() const {
  std::int64_t total = size_of(dtype);
  for (const std::int64_t size : shape) total *= size;
  return total;
}

std::vector<std::byte> safetensors_header(std::span<const SafeTensorSpec> specs,
                                          const std::map<std::string, std::string>& metadata) {
  const std::string text = header_of(specs, metadata);
  const std::uint64_t length = text.size();
  std::vector<std::byte> header;
  std::ranges::copy(std::as_bytes(std::span(&length, 1)), std::back_inserter(header));
  std::ranges::copy(std::as_bytes(std::span(text)), std::back_inserter(header));
  return header;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const SafeTensorSpec> specs,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), header_(safetensors_header(specs, metadata)) {
  file_.append(header_);
  for (const SafeTensorSpec& spec : specs) data_bytes_ += spec.bytes();
}

void SafetensorsWriter::append(std::span<const std::byte> data) {
  written_ += std::ssize(data);
  require_invariant(written_ <= data_bytes_, "more data than the header names");
  file_.append(data);
}

void SafetensorsWriter::finish() {
  require_invariant(written_ == data_bytes_, "less data than the header names");
  file_.finish();
}

}  // namespace meshplan::runtime
