// Exceptions for WebAssembly: what Debian's libc++abi, which is built without them, leaves out.
//
// The compiler throws a WebAssembly exception that carries the address of an _Unwind_Exception. Each
// place that may catch one calls _Unwind_CallPersonality, which looks the place up in the table
// (LSDA) of its function and says which of its catch clauses, if any, takes the exception. The
// clause itself begins with __cxa_begin_catch. There is one thread, and nothing runs while another
// exception unwinds but destructors.
//
// Sources: Itanium C++ ABI, exception handling, and its LSDA as GCC and LLVM write it
// (EHStreamer::emitExceptionTable; WasmEHPrepare for the landing pads' context); libc++abi
// (private_typeinfo.h) for how a catch clause's type is asked.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <typeinfo>

namespace __cxxabiv1 {

/// What every type_info of libc++abi is, by its virtual functions in their order.
class __shim_type_info : public std::type_info {
 public:
  ~__shim_type_info() override;
  virtual void noop1() const;
  virtual void noop2() const;
  /// Would `catch (this type)` take an object of the type thrown?
  /// @param object  its address; gets that of the part which the clause sees
  virtual bool can_catch(const __shim_type_info* thrown, void*& object) const = 0;
};

}  // namespace __cxxabiv1

namespace {

using TypeInfo = __cxxabiv1::__shim_type_info;

/// What stands before each object thrown.
struct Exception {
  std::size_t handlers = 0;  // that hold it
  bool rethrown = false;     // by its newest handler
  const TypeInfo* type = nullptr;
  void* (*destroy)(void*) = nullptr;  // in WebAssembly's ABI destructors return their object
  void* caught = nullptr;          // the object, as the clause that catches it sees it
  Exception* next_caught = nullptr;  // what was being handled before
  struct alignas(16) Unwound {  // the compiler knows its address alone
    std::uint64_t unused = 0;
  } unwound;
};

Exception* newest_caught = nullptr;  // what is being handled

void* object_of(Exception* exception) { return exception + 1; }

Exception* exception_of(void* object) { return static_cast<Exception*>(object) - 1; }

Exception* of_unwound(void* unwound) {
  return reinterpret_cast<Exception*>(static_cast<char*>(unwound) - offsetof(Exception, unwound));
}

constexpr int kCppTag = 0;  // of WebAssembly's exceptions

[[noreturn]] void throw_again(Exception* exception) {
  __builtin_wasm_throw(kCppTag, &exception->unwound);
}

std::uint64_t read_unsigned(const std::uint8_t*& at) {  // LEB128
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t byte = *at++;
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::int64_t read_signed(const std::uint8_t*& at) {
  std::int64_t value = 0;
  for (unsigned shift = 0;;) {
    const std::uint8_t byte = *at++;
    value |= static_cast<std::int64_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    return (byte & 0x40) != 0 && shift < 64 ? value - (std::int64_t{1} << shift) : value;
  }
}

/// A function's table. Types stand before `types`, the first next to it.
struct CatchTable {
  const std::uint8_t* pads = nullptr;
  const std::uint8_t* actions = nullptr;
  const std::uint8_t* types = nullptr;

  explicit CatchTable(const std::uint8_t* at) {
    constexpr std::uint8_t kOmitted = 0xff;
    if (*at++ != kOmitted) std::abort();  // landing pads are numbers, so they have no base
    if (*at++ != kOmitted) {
      const auto offset = static_cast<std::size_t>(read_unsigned(at));
      types = at + offset;
    }
    ++at;  // encoding of landing pads: LEB128
    const auto length = static_cast<std::size_t>(read_unsigned(at));
    pads = at;
    actions = at + length;
  }

  const TypeInfo* type(std::int64_t index) const {
    const TypeInfo* found = nullptr;
    std::memcpy(&found, types - index * static_cast<std::int64_t>(sizeof found), sizeof found);
    return found;  // null: catch (...)
  }
};

/// The clause of a landing pad that takes the exception, by the number the compiler gave it; 0 =
/// none.
std::uintptr_t clause_for(Exception* exception, const CatchTable& table, std::uintptr_t pad) {
  const std::uint8_t* at = table.pads;
  for (;;) {
    const std::uint64_t number = read_unsigned(at), first_action = read_unsigned(at);
    if (number != pad) continue;
    if (first_action == 0) return 0;  // destructors alone
    at = table.actions + (first_action - 1);
    break;
  }
  for (;;) {
    const std::int64_t clause = read_signed(at);
    if (clause > 0) {
      exception->caught = object_of(exception);
      const TypeInfo* type = table.type(clause);
      if (type == nullptr || type->can_catch(exception->type, exception->caught))
        return static_cast<std::uintptr_t>(clause);
    }
    const std::uint8_t* const here = at;
    const std::int64_t to_next = read_signed(at);
    if (to_next == 0) return 0;
    at = here + to_next;
  }
}

}  // namespace

extern "C" {

/// What a landing pad says of itself before it asks, and the answer.
struct {
  std::uintptr_t pad;
  std::uintptr_t table;
  std::uintptr_t clause;
} __wasm_lpad_context = {};

int _Unwind_CallPersonality(void* unwound) {
  auto& asked = __wasm_lpad_context;
  asked.clause = asked.table == 0
                     ? 0
                     : clause_for(of_unwound(unwound),
                                  CatchTable(reinterpret_cast<const std::uint8_t*>(asked.table)),
                                  asked.pad);
  return 0;
}

void* __cxa_allocate_exception(std::size_t size) noexcept {
  void* memory = std::malloc(sizeof(Exception) + size);
  if (memory == nullptr) std::terminate();
  return object_of(new (memory) Exception());
}

void __cxa_free_exception(void* object) noexcept { std::free(exception_of(object)); }

[[noreturn]] void __cxa_throw(void* object, std::type_info* type, void* (*destroy)(void*)) {
  Exception* exception = exception_of(object);
  exception->type = static_cast<const TypeInfo*>(type);
  exception->destroy = destroy;
  throw_again(exception);
}

void* __cxa_get_exception_ptr(void* unwound) noexcept { return of_unwound(unwound)->caught; }

void* __cxa_begin_catch(void* unwound) noexcept {
  Exception* exception = of_unwound(unwound);
  ++exception->handlers;
  exception->rethrown = false;
  if (exception != newest_caught) {
    exception->next_caught = newest_caught;
    newest_caught = exception;
  }
  return exception->caught;
}

void __cxa_end_catch() {
  Exception* exception = newest_caught;
  if (--exception->handlers > 0) return;
  newest_caught = exception->next_caught;
  if (exception->rethrown) return;  // it is on its way
  void* object = object_of(exception);
  if (exception->destroy != nullptr) exception->destroy(object);
  __cxa_free_exception(object);
}

[[noreturn]] void __cxa_rethrow() {
  if (newest_caught == nullptr) std::terminate();
  newest_caught->rethrown = true;
  throw_again(newest_caught);
}

}  // extern "C"
