#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "torch_files/pickle.h"
#include "torch_files/pickle_records.h"

namespace tessera {

namespace {

// Opcodes, by their names in Python's pickletools.
struct Opcode {
  enum : uint8_t {
    kProto = 0x80,
    kFrame = 0x95,
    kStop = '.',
    kMark = '(',
    kGlobal = 'c',
    kStackGlobal = 0x93,
    kReduce = 'R',
    kBuild = 'b',
    kNewObj = 0x81,
    kNewObjEx = 0x92,
    kBinPersId = 'Q',
    kBinPut = 'q',
    kLongBinPut = 'r',
    kMemoize = 0x94,
    kBinGet = 'h',
    kLongBinGet = 'j',
    kBinUnicode = 'X',
    kShortBinUnicode = 0x8c,
    kBinUnicode8 = 0x8d,
    kShortBinString = 'U',
    kShortBinBytes = 'C',
    kBinBytes = 'B',
    kBinInt = 'J',
    kBinInt1 = 'K',
    kBinInt2 = 'M',
    kLong1 = 0x8a,
    kBinFloat = 'G',
    kNone = 'N',
    kNewTrue = 0x88,
    kNewFalse = 0x89,
    kEmptyTuple = ')',
    kTuple = 't',
    kTuple1 = 0x85,
    kTuple2 = 0x86,
    kTuple3 = 0x87,
    kEmptyList = ']',
    kAppend = 'a',
    kAppends = 'e',
    kEmptyDict = '}',
    kSetItem = 's',
    kSetItems = 'u',
    kEmptySet = 0x8f,
    kAddItems = 0x90,
    kFrozenSet = 0x91,
  };
};

constexpr size_t kMaxGlobalBytes = 256;
constexpr uint64_t kFreeBytes = uint64_t{64} << 20, kBytesPerByte = 16;
constexpr uint64_t kBytesPerText = 64;  // of a hash table
constexpr size_t kOperationsPerReport = 4096;

// What people can read of bytes that may be anything.
std::string shown(std::string_view bytes) {
  std::string text;
  for (char c : bytes.substr(0, 100)) text += c >= ' ' && c <= '~' ? c : '?';
  return text;
}

}  // namespace

// Walks the operations once, with a stack, as Python's machine does.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, std::span<const std::byte> bytes,
               const std::function<void(size_t)>& progress)
      : pickle_(pickle),
        bytes_(bytes),
        progress_(progress),
        budget_(kFreeBytes + kBytesPerByte * bytes.size()) {}

  PickleValue run() {
    if (bytes_.empty()) fail("it is empty");
    if (take(1)[0] != std::byte{Opcode::kProto}) fail("it is no pickle of protocol 2 or later");
    auto protocol = number<uint8_t>();
    if (protocol < 2 || protocol > 5) fail(cat("its pickle is of protocol ", protocol));
    for (size_t count = 1;; ++count) {
      if (count % kOperationsPerReport == 0) {
        check_interruption();
        if (progress_) progress_(at_);
      }
      auto opcode = number<uint8_t>();
      if (opcode == Opcode::kStop) break;
      step(opcode);
    }
    if (stack_.size() != 1 || !marks_.empty()) fail("its pickle ends with values left over");
    if (at_ != bytes_.size()) fail("there is something behind the end of its pickle");
    return stack_.back();
  }

 private:
  using Value = PickleValue;
  using Sequence = Pickle::Sequence;

  [[noreturn]] void fail(std::string_view reason) const { pickle_.fail(reason); }
  static Sequence& sequence(Value v) { return v.record<Sequence>(); }

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - at_)
      fail(cat("its pickle ends in the middle of an operation at byte ", at_,
               " (is it truncated?)"));
    auto taken = bytes_.subspan(at_, static_cast<size_t>(count));
    at_ += taken.size();
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view characters(uint64_t count) {
    auto taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::string_view line() {
    size_t left = std::min(bytes_.size() - at_, kMaxGlobalBytes);
    std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, left);
    size_t end = text.find('\n');
    if (end == text.npos) fail("its pickle has the name of a global without an end");
    at_ += end + 1;
    return text.substr(0, end);
  }

  // Memory, of which there is as much as the pickle's own length allows.
  void charge(uint64_t bytes) {
    if (bytes > budget_)
      fail(cat("the values of its pickle take far more memory than its ", bytes_.size(), " bytes"));
    budget_ -= bytes;
  }
  void* allocate(size_t bytes, size_t alignment) {
    charge(bytes + alignment);
    return pickle_.arena_->allocate(bytes, alignment);
  }
  template <class T>
  Value record(PickleKind kind, const T& content) {
    static_assert(alignof(T) == 16);
    return {kind, new (allocate(sizeof(T), alignof(T))) T(content)};
  }

  void push(Value v) {
    charge(sizeof v);
    stack_.push_back(v);
  }
  // Values above the last mark stay there: an operation that wants more than there are is broken.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(size_t count) const {
    if (stack_.size() - floor() < count)
      fail(cat("its pickle takes a value that is not there, before byte ", at_));
  }
  Value pop() {
    need(1);
    Value v = stack_.back();
    drop(1);
    return v;
  }
  void drop(size_t count) {
    stack_.resize(stack_.size() - count);
    budget_ += count * sizeof(Value);
  }
  Value& top() {
    need(1);
    return stack_.back();
  }
  // The values above the last mark, which are to be dropped after use; the mark goes.
  std::span<const Value> above_mark() {
    if (marks_.empty()) fail(cat("its pickle takes a mark that is not there, before byte ", at_));
    auto values = std::span(stack_).subspan(marks_.back());
    marks_.pop_back();
    return values;
  }
  std::span<const Value> above(size_t count) {
    need(count);
    return std::span(stack_).last(count);
  }

  void append(Sequence& to, std::span<const Value> values) {
    size_t size = to.size + values.size();
    if (size > UINT32_MAX) fail("its pickle has a list that is too long");
    if (size > to.capacity) {
      size_t capacity = to.size == 0 ? size : std::max(size, size_t{2} * to.size);
      capacity = std::min(capacity, size_t{UINT32_MAX});
      auto* items = static_cast<Value*>(allocate(capacity * sizeof(Value), alignof(Value)));
      std::copy_n(to.items, to.size, items);
      to.items = items;
      to.capacity = static_cast<uint32_t>(capacity);
    }
    std::ranges::copy(values, to.items + to.size);
    to.size = static_cast<uint32_t>(size);
  }
  // Replaces the values, which are on top of the stack, by one of them all.
  void gather(PickleKind kind, std::span<const Value> values) {
    Sequence sequence;
    append(sequence, values);
    drop(values.size());
    push(record(kind, sequence));
  }
  // Moves the values from the top of the stack into what lies below them.
  void add(PickleKind kind, std::span<const Value> values) {
    if (stack_.size() - values.size() <= floor())
      fail(cat("its pickle adds to a value that is not there, before byte ", at_));
    Value to = stack_[stack_.size() - values.size() - 1];
    if (!to.is(kind)) fail(cat("its pickle adds to ", name_of(to.kind()), " as to another kind"));
    if (kind == PickleKind::kDict && values.size() % 2 != 0) fail("its pickle has a key alone");
    append(sequence(to), values);
    drop(values.size());
  }

  void push_int(int64_t value) {
    if (Value::is_small(value)) return push({PickleKind::kInt, value});
    push_characters(PickleKind::kLong, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) return push_characters(PickleKind::kLong, bytes);
    bool negative = !bytes.empty() && (static_cast<uint8_t>(bytes.back()) & 0x80u) != 0;
    int64_t value = negative ? -1 : 0;
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), bytes.size());
    push_int(value);
  }
  // What several processes wrote has the same names again and again: they are kept once.
  void push_text(std::string_view text) {
    auto known = texts_.find(text);
    if (known != texts_.end()) return push(known->second);
    push_characters(PickleKind::kText, text);
    charge(kBytesPerText);
    texts_.emplace(pickle_.text(top(), "a text"), top());
  }
  void push_characters(PickleKind kind, std::string_view text) {
    char* copy = nullptr;
    if (!text.empty()) {
      copy = static_cast<char*>(allocate(text.size(), 1));
      std::memcpy(copy, text.data(), text.size());
    }
    push(record(kind, Pickle::Characters{text.size(), copy}));
  }
  void push_float(uint64_t big_endian) {
    auto bits = __builtin_bswap64(big_endian);
    push(record(PickleKind::kFloat, Pickle::Float{std::bit_cast<double>(bits)}));
  }
  void push_global(std::string_view module, std::string_view name) {
    std::string full = cat(module, ".", name);
    auto known = std::ranges::find(pickle_.globals_, full);
    if (known == pickle_.globals_.end()) {
      throw UserError(
          cat("'", pickle_.where_, "' asks for the Python object '", shown(full),
              "', which is neither a tensor nor a plain value: nothing of it was run; take a file "
              "with the state dict alone, torch.save(model.state_dict(), FILE), and beware of this "
              "one unless you know why it does"));
    }
    push({PickleKind::kGlobal, known - pickle_.globals_.begin()});
  }

  // Three classes are plain values by another name: they are written as calls, and dicts are filled
  // like others behind that.
  void make_object() {
    Value arguments = pop(), maker = pop();
    if (!maker.is(PickleKind::kGlobal) || !arguments.is(PickleKind::kTuple))
      fail("its pickle makes an object without a class or without arguments");
    const std::string_view name = pickle_.global(maker, "what makes an object");
    const Sequence& given = sequence(arguments);
    if (name == "torch.Size" && given.size == 1 && given.items[0].is(PickleKind::kTuple))
      return push(given.items[0]);
    if (name == "collections.OrderedDict" && given.size > 0)
      fail("its pickle has an OrderedDict in a form that is not read");
    if (name == "collections.OrderedDict" || name == "collections.defaultdict")
      return push(record(PickleKind::kDict, Sequence{}));
    push(record(PickleKind::kObject, Pickle::Object{{maker, arguments, {}}}));
  }
  // Attributes of a dict are nothing that is stored in it.
  void build() {
    Value state = pop(), to = top();
    if (to.is(PickleKind::kDict)) return;
    if (!to.is(PickleKind::kObject)) fail("its pickle gives a state to what is no object");
    auto& object = to.record<Pickle::Object>();
    if (!object.state.is(PickleKind::kNone)) fail("its pickle gives an object two states");
    object.state = state;
  }

  void put(uint64_t index) {
    // Python numbers what it keeps as it goes.
    if (index >= bytes_.size()) fail(cat("its pickle keeps a value under the number ", index));
    if (index >= memo_.size()) {
      charge((index + 1 - memo_.size()) * sizeof(Value));
      memo_.resize(index + 1);
      is_kept_.resize(index + 1);
    }
    memo_[index] = top();
    is_kept_[index] = true;
  }
  void get(uint64_t index) {
    if (index >= memo_.size() || !is_kept_[index])
      fail(cat("its pickle takes value ", index, ", which it has not kept"));
    push(memo_[index]);
  }

  void step(uint8_t opcode) {
    switch (opcode) {
      case Opcode::kFrame:
        if (number<uint64_t>() > bytes_.size() - at_) fail("its pickle is cut short");
        return;
      case Opcode::kMark: charge(sizeof(size_t)); return marks_.push_back(stack_.size());
      case Opcode::kGlobal: {
        std::string_view module = line();
        return push_global(module, line());
      }
      case Opcode::kStackGlobal: {
        Value name = pop(), module = pop();
        const std::string_view name_text = pickle_.text(name, "the name of a global");
        return push_global(pickle_.text(module, "the module of a global"), name_text);
      }
      case Opcode::kReduce:
      case Opcode::kNewObj: return make_object();
      case Opcode::kNewObjEx: {
        Value keywords = pop();
        if (!pickle_.pairs(keywords, "the keywords of an object").empty())
          fail("its pickle makes an object with keywords");
        return make_object();
      }
      case Opcode::kBuild: return build();
      case Opcode::kBinPersId: return gather(PickleKind::kReference, above(1));
      case Opcode::kBinPut: return put(number<uint8_t>());
      case Opcode::kLongBinPut: return put(number<uint32_t>());
      case Opcode::kMemoize: return put(memo_.size());
      case Opcode::kBinGet: return get(number<uint8_t>());
      case Opcode::kLongBinGet: return get(number<uint32_t>());
      default: return step_plain(opcode);
    }
  }

  void step_plain(uint8_t opcode) {
    using Kind = PickleKind;
    switch (opcode) {
      case Opcode::kShortBinString:
      case Opcode::kShortBinUnicode: return push_text(characters(number<uint8_t>()));
      case Opcode::kBinUnicode: return push_text(characters(number<uint32_t>()));
      case Opcode::kBinUnicode8: return push_text(characters(number<uint64_t>()));
      case Opcode::kShortBinBytes:
        return push_characters(Kind::kBytes, characters(number<uint8_t>()));
      case Opcode::kBinBytes: return push_characters(Kind::kBytes, characters(number<uint32_t>()));
      case Opcode::kBinInt: return push_int(number<int32_t>());
      case Opcode::kBinInt1: return push_int(number<uint8_t>());
      case Opcode::kBinInt2: return push_int(number<uint16_t>());
      case Opcode::kLong1: return push_long(characters(number<uint8_t>()));
      case Opcode::kBinFloat: return push_float(number<uint64_t>());
      case Opcode::kNone: return push({});
      case Opcode::kNewTrue: return push({Kind::kBool, int64_t{1}});
      case Opcode::kNewFalse: return push({Kind::kBool, int64_t{0}});
      case Opcode::kEmptyTuple: return gather(Kind::kTuple, {});
      case Opcode::kTuple1: return gather(Kind::kTuple, above(1));
      case Opcode::kTuple2: return gather(Kind::kTuple, above(2));
      case Opcode::kTuple3: return gather(Kind::kTuple, above(3));
      case Opcode::kTuple: return gather(Kind::kTuple, above_mark());
      case Opcode::kFrozenSet: return gather(Kind::kSet, above_mark());
      case Opcode::kEmptyList: return gather(Kind::kList, {});
      case Opcode::kEmptyDict: return gather(Kind::kDict, {});
      case Opcode::kEmptySet: return gather(Kind::kSet, {});
      case Opcode::kAppend: return add(Kind::kList, above(1));
      case Opcode::kAppends: return add(Kind::kList, above_mark());
      case Opcode::kSetItem: return add(Kind::kDict, above(2));
      case Opcode::kSetItems: return add(Kind::kDict, above_mark());
      case Opcode::kAddItems: return add(Kind::kSet, above_mark());
      default: refuse(opcode);
    }
  }
  [[noreturn]] void refuse(uint8_t opcode) const {
    fail(
        format("its pickle has the operation 0x%02x at byte %zu, which tensors and plain values "
               "do not need; nothing of it was run",
               opcode, at_ - 1));
  }

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  const std::function<void(size_t)>& progress_;
  uint64_t budget_;
  size_t at_ = 0;
  std::vector<Value> stack_, memo_;
  std::vector<bool> is_kept_;
  std::unordered_map<std::string_view, Value> texts_;
  std::vector<size_t> marks_;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::span<const std::string_view> globals,
               std::string where, const std::function<void(size_t)>& progress)
    : where_(std::move(where)),
      globals_(globals),
      arena_(std::make_unique<std::pmr::monotonic_buffer_resource>()) {
  root_ = PickleReader(*this, bytes, progress).run();
}

}  // namespace tessera
