#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kLong,  // an integer of more than 60 bits
  kFloat,
  kText,
  kBytes,
  kGlobal,  // a class or a function, by its name
  kTuple,
  kList,
  kDict,
  kSet,
  kObject,     // what a global would make of arguments
  kReference,  // something outside of the pickle (a persistent id)
};

// A value of a Pickle, by reference unless it is small: 8 bytes.
class PickleValue {
 public:
  PickleValue() = default;
  PickleKind kind() const { return static_cast<PickleKind>(bits_ & kKindMask); }
  bool is(PickleKind k) const { return kind() == k; }
  // Whether both are the same value in memory; equal texts may be two values.
  bool operator==(const PickleValue&) const = default;

 private:
  friend class Pickle;
  friend class PickleReader;
  static constexpr int kKindBits = 4;
  static constexpr uint64_t kKindMask = (1u << kKindBits) - 1;
  static bool is_small(int64_t number) { return number << kKindBits >> kKindBits == number; }
  PickleValue(PickleKind kind, int64_t number)
      : bits_(static_cast<uint64_t>(number) << kKindBits | static_cast<uint64_t>(kind)) {}
  PickleValue(PickleKind kind, const void* record)
      : bits_(std::bit_cast<uint64_t>(record) | static_cast<uint64_t>(kind)) {}
  int64_t small() const { return static_cast<int64_t>(bits_) >> kKindBits; }
  template <class T>
  T& record() const {
    return *std::bit_cast<T*>(bits_ & ~kKindMask);
  }

  uint64_t bits_ = 0;  // the kind, and above it a number or the address of a record
};

// What REDUCE or NEWOBJ, and BUILD behind them, describe. Nothing of it was done.
struct PickleObject {
  PickleValue maker, arguments;  // a kGlobal, a kTuple
  PickleValue state;             // kNone where there is none
};

// What Python's pickle module wrote (protocols 2 to 5), as plain values. Nothing is ever executed:
// a global is a name, and one that the reader of a file does not know is an error. Three classes
// are plain values: collections.OrderedDict and defaultdict are dicts, torch.Size is its tuple.
class Pickle {
 public:
  // `globals` are the names that may appear, "module.name". `where` is what messages call the file.
  // Every few thousand operations `progress` hears how many bytes have been read.
  //
  // UserError that names `where`: a global besides these, by its name; an operation besides those
  // that plain values, objects and references need; a broken or truncated pickle, bytes behind its
  // end, another protocol; one whose values would take more than 64 MiB and 16 times its bytes.
  // Interrupted on request.
  Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> globals,
         std::string where, const std::function<void(size_t)>& progress = {});

  const std::string& where() const { return where_; }
  PickleValue root() const { return root_; }

  // The functions below take a value of the kind that they say; of another one they are a UserError
  // that says `what` it should have been: "the offset of a tensor".
  bool truth(PickleValue v, std::string_view what) const;
  int64_t integer(PickleValue v, std::string_view what) const;  // kInt; kLong where 64 bits hold it
  double number(PickleValue v, std::string_view what) const;    // kFloat, kInt, kBool
  std::string_view text(PickleValue v, std::string_view what) const;
  std::string_view global(PickleValue v, std::string_view what) const;  // "module.name"
  // Of a kTuple, kList or kSet.
  std::span<const PickleValue> items(PickleValue v, std::string_view what) const;
  // Of a kDict: key, value, key, value, ... as written, so keys may appear twice.
  std::span<const PickleValue> pairs(PickleValue v, std::string_view what) const;
  // The last value of a text key; nullopt where the kDict has none.
  std::optional<PickleValue> find(PickleValue dict, std::string_view key) const;
  const PickleObject& object(PickleValue v, std::string_view what) const;
  PickleValue reference(PickleValue v, std::string_view what) const;

  // UserError "'WHERE' cannot be read: REASON".
  [[noreturn]] void fail(std::string_view reason) const;

 private:
  friend class PickleReader;
  struct Sequence;
  struct Characters;
  struct Float;
  struct Object;
  [[noreturn]] void fail_kind(PickleValue v, std::string_view what) const;

  std::string where_;
  std::span<const std::string_view> globals_;
  // All records; they go with it at once, however deep they nest.
  std::unique_ptr<std::pmr::monotonic_buffer_resource> arena_;
  PickleValue root_;
};

// "a list", "a text": for messages.
std::string_view name_of(PickleKind kind);

}  // namespace tessera
