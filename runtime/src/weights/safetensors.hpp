// The safetensors format (Hugging Face): 8 bytes little-endian length N, N bytes of JSON that give
// each tensor's dtype, shape and byte range, then the raw, row-major, little-endian data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.hpp"
#include "runtime/os/durable_file.hpp"

namespace meshplan::runtime {

/// A tensor of a file that is open.
struct SafeTensor {
  std::string dtype_name;  // as in the file: "F32", "BF16", also ones that DType lacks: "F8_E4M3"
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;

  /// @throws ConfigError for a dtype that meshplan does not compute with
  DType dtype() const;
};

/// A memory-mapped safetensors file. Strict: byte ranges follow one another without gaps or
/// overlaps, fill the file exactly and fit shape and dtype.
class SafetensorsFile {
 public:
  /// @throws ConfigError naming the file, the tensor and what is wrong; IoError if it cannot be
  /// read
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
  /// @throws ConfigError with the nearest name if there is none
  const SafeTensor& at(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// All bytes before the data.
  std::span<const std::byte> header() const { return header_; }

 private:
  std::string path_;
  MappedFile file_;
  std::span<const std::byte> header_;
  std::map<std::string, SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Name, dtype and shape of a tensor to be written.
struct SafeTensorSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::int64_t bytes() const;
};

/// All bytes of a file before its data: length and JSON, padded so that the data is aligned to 8.
std::vector<std::byte> safetensors_header(std::span<const SafeTensorSpec> specs,
                                          const std::map<std::string, std::string>& metadata);

/// Writes a file front to back: the header at once, then the tensors' data in the order of `specs`.
class SafetensorsWriter {
 public:
  /// @throws IoError
  SafetensorsWriter(const std::string& path, std::span<const SafeTensorSpec> specs,
                    const std::map<std::string, std::string>& metadata);

  /// The next bytes of the data. @throws IoError
  void append(std::span<const std::byte> data);
  /// Makes the file durable. @throws InvariantError if data is missing, IoError
  void finish();
  std::int64_t file_bytes() const { return std::ssize(header_) + data_bytes_; }
  /// All bytes before the data.
  std::span<const std::byte> header() const { return header_; }

 private:
  DurableFile file_;
  std::vector<std::byte> header_;
  std::int64_t data_bytes_ = 0;
  std::int64_t written_ = 0;
};

}  // namespace meshplan::runtime
