// What only ranks of one job know, and proofs of knowing it: keyed BLAKE2b (RFC 7693) of libsodium.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace meshplan::runtime {

using Hash = std::array<std::byte, 32>;
/// Random, used once: no answer to one nonce is an answer to another.
using Nonce = std::array<std::byte, 32>;

Nonce random_nonce();
/// Without a key: whether these are the bytes that a proof was about.
Hash digest_of(std::span<const std::byte> bytes);
/// In a time that does not depend on where they differ.
bool equal(const Hash& a, const Hash& b);

/// 32 bytes, wiped when they are no longer needed. Nothing prints them.
class Secret {
 public:
  static Secret random();
  /// Hashes a text that somebody chose; the text itself is not kept.
  static Secret from_text(std::string_view text);
  static Secret from_bytes(const std::array<std::byte, 32>& bytes);

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  /// Who knows the secret can have said this, and nobody else. @param role  who speaks to whom
  /// about what: a proof in one role is none in another, so that it is of no use to send it back
  Hash prove(std::string_view role, std::span<const std::byte> about) const;
  /// Another secret, which says nothing about this one.
  Secret derived(std::string_view purpose, std::span<const std::byte> context) const;
  /// To hand it on to who may know it.
  std::span<const std::byte, 32> bytes() const { return key_; }

 private:
  Secret() = default;
  std::array<std::byte, 32> key_{};
};

}  // namespace meshplan::runtime
