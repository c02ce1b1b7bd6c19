#include "meet/secret.hpp"

#include <cstdint>
#include <sodium.h>

#include "core/error.hpp"

namespace meshplan::runtime {
namespace {

static_assert(sizeof(Hash) >= crypto_generichash_BYTES_MIN &&
              sizeof(Hash) <= crypto_generichash_BYTES_MAX);
static_assert(sizeof(Hash) <= crypto_generichash_KEYBYTES_MAX, "a hash is a key, too");

const unsigned char* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// Also chooses the fastest code for this processor, once.
void need_library() {
  static const bool kReady = sodium_init() >= 0;
  require_invariant(kReady, "libsodium starts");
}

/// Keyed where `key` is not empty; of the label, its length and the bytes, so that no label and
/// bytes are like others.
Hash hash(std::span<const std::byte> key, std::string_view label,
          std::span<const std::byte> bytes) {
  need_library();
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.empty() ? nullptr : data_of(key), key.size(), sizeof(Hash));
  const std::uint64_t length = label.size();
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(&length), sizeof length);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(label.data()), length);
  crypto_generichash_update(&state, data_of(bytes), bytes.size());
  Hash result;
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(result.data()), sizeof result);
  sodium_memzero(&state, sizeof state);
  return result;
}

}  // namespace

Nonce random_nonce() {
  need_library();
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Hash digest_of(std::span<const std::byte> bytes) {
  return hash({}, "meshplan digest", bytes);
}

bool equal(const Hash& a, const Hash& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret Secret::random() {
  Secret secret;
  secret.key_ = random_nonce();
  return secret;
}

Secret Secret::from_text(std::string_view text) {
  Secret secret;
  secret.key_ = hash({}, "meshplan job secret", std::as_bytes(std::span(text)));
  return secret;
}

Secret Secret::from_bytes(const std::array<std::byte, 32>& bytes) {
  Secret secret;
  secret.key_ = bytes;
  return secret;
}

Secret::~Secret() {
  sodium_memzero(key_.data(), key_.size());
}

Hash Secret::prove(std::string_view role, std::span<const std::byte> about) const {
  return hash(key_, role, about);
}

Secret Secret::derived(std::string_view purpose, std::span<const std::byte> context) const {
  return from_bytes(hash(key_, purpose, context));
}

}  // namespace meshplan::runtime
