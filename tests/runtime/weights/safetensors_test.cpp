#include "weights/safetensors.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.hpp"
#include "runtime/temporary_folder.hpp"

namespace meshplan::runtime {
namespace {

using Catch::Matchers::Contains;

/// A file from its parts, as the format's definition gives them.
std::string raw_file(std::string_view header, std::string_view data) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof length);
  return text + std::string(header) + std::string(data);
}

void check_refused(const test::TemporaryFolder& folder, const std::string& content,
                   const std::string& message) {
  const std::string path = folder.file("bad.safetensors", content);
  CAPTURE(message);
  CHECK_THROWS_WITH(SafetensorsFile(path), Contains(message) && Contains("bad.safetensors"));
  CHECK_THROWS_AS(SafetensorsFile(path), ConfigError);
}

}  // namespace

TEST_CASE("a file as the format defines it is read", "[runtime][safetensors]") {
  const test::TemporaryFolder folder;
  const float values[] = {1.5F, -2.0F};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  const std::string path =
      folder.file("a.safetensors",
                  raw_file(R"({"__metadata__":{"format":"pt"},)"
                           R"("b":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[8,11]},)"
                           R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                           R"("empty":{"dtype":"I64","shape":[0,5],"data_offsets":[11,11]}}   )",
                           data + "xyz"));
  const SafetensorsFile file(path);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(file.tensors().size() == 3);
  const SafeTensor& a = file.at("a");
  CHECK(a.shape == std::vector<std::int64_t>{2, 1});
  CHECK(a.dtype() == DType::F32);
  REQUIRE(a.data.size() == sizeof values);
  CHECK(std::memcmp(a.data.data(), values, sizeof values) == 0);
  CHECK_THROWS_WITH(file.at("b").dtype(), Contains("F8_E4M3 is not supported"));
  CHECK(file.at("empty").data.empty());
  CHECK_THROWS_WITH(file.at("emty"), Contains("no tensor 'emty'; nearest: 'empty'"));
}

TEST_CASE("what is written follows the definition byte for byte", "[runtime][safetensors]") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  const std::vector<SafeTensorSpec> specs = {{"x", DType::F32, {1, 2}}, {"y", DType::BF16, {1}}};
  const float x[] = {0.5F, 4.0F};
  const std::uint16_t y = 0x3f80;
  SafetensorsWriter writer(path, specs, {{"k", "v"}});
  writer.append(std::as_bytes(std::span(x)));
  writer.append(std::as_bytes(std::span(&y, 1)));
  writer.finish();
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::string header =
      R"({"__metadata__":{"k":"v"},"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("y":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  CHECK(text == raw_file(header, std::string(reinterpret_cast<const char*>(x), 8) +
                                     std::string(reinterpret_cast<const char*>(&y), 2)));
  CHECK(writer.file_bytes() == std::ssize(text));
}

TEST_CASE("every way of being malformed is named", "[runtime][safetensors]") {
  const test::TemporaryFolder folder;
  const auto tensor = [](const char* name, const char* dtype, const char* shape,
                         const char* offsets) {
    return std::string("\"") + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string a = tensor("a", "F32", "[1]", "[0,4]");
  check_refused(folder, "abc", "3 bytes are too few for a header length");
  check_refused(folder, std::string(8, '\xff'), "this is no safetensors file");
  check_refused(folder, raw_file("{" + a + "}", "1234").substr(0, 20), "is truncated");
  check_refused(folder, raw_file("{\"a\":", ""), "header:1:6: not valid JSON");
  check_refused(folder, raw_file("[1]", ""), "no JSON object");
  check_refused(folder, raw_file("{" + a + "}", "123"), "the file is truncated");
  check_refused(folder, raw_file("{" + a + "}", "12345"), "1 bytes after a belong to no tensor");
  check_refused(folder, raw_file("{" + a + "," + tensor("b", "U8", "[2]", "[3,5]") + "}", "12345"),
                "a and b overlap");
  check_refused(folder, raw_file("{" + a + "," + tensor("b", "U8", "[1]", "[5,6]") + "}", "123456"),
                "1 bytes between a and b");
  check_refused(folder, raw_file("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", "1234"),
                "are 4 bytes, but F32 of shape [2] take 8");
  check_refused(folder, raw_file("{" + tensor("a", "F32", "[1]", "[4,0]") + "}", "1234"), "[4, 0]");
  check_refused(folder, raw_file("{" + tensor("a", "F33", "[1]", "[0,4]") + "}", "1234"),
                "unknown dtype \"F33\"");
  check_refused(folder, raw_file("{" + tensor("a", "F32", "[-1]", "[0,4]") + "}", "1234"),
                "expected a whole number of at least 0, got -1");
  check_refused(folder,
                raw_file("{" + tensor("a", "F32", "[4611686018427387904,4]", "[0,0]") + "}", ""),
                "more bytes than 64 bits count");
  check_refused(folder, raw_file(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"),
                "data_offsets is missing");
  check_refused(folder, raw_file(R"({"a":{"dtpye":"F32"}})", ""), "did you mean 'dtype'");
  CHECK_THROWS_WITH(SafetensorsFile(folder.path() + "/none"), Contains("no such file"));
  CHECK_THROWS_WITH(SafetensorsFile(folder.path()), Contains("is a folder, not a file"));
}

}  // namespace meshplan::runtime
