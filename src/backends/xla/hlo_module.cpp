#include "backends/xla/hlo_module.h"

#include "base/error.h"

namespace tessera::xla {
namespace {

// One field after the other of a protocol buffer's message.
class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}
  // False at the end.
  bool next() {
    if (left_.empty()) return false;
    const uint64_t key = varint();
    number = key >> 3;
    bytes = {};
    switch (key & 7) {
      case 0: varint(); break;
      case 1: take(8); break;
      case 2: bytes = take(varint()); break;
      case 5: take(4); break;
      default: malformed();
    }
    return true;
  }
  uint64_t number = 0;
  std::string_view bytes;  // of a field that has some

  static int64_t count_varints(std::string_view packed) {
    int64_t count = 0;
    for (char c : packed) count += static_cast<unsigned char>(c) < 128;
    return count;
  }

 private:
  [[noreturn]] static void malformed() {
    throw UserError("the program that XLA gave back is cut off or malformed");
  }
  std::string_view take(uint64_t size) {
    if (size > left_.size()) malformed();
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(size);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
    malformed();
  }
  std::string_view left_;
};

// HloInstructionProto: 2, opcode; 36, operands.
void count_instruction(std::string_view instruction, HloGathers& gathers) {
  std::string_view opcode;
  int64_t operands = 0;
  for (Fields field(instruction); field.next();) {
    if (field.number == 2) opcode = field.bytes;
    if (field.number == 36)
      operands += field.bytes.empty() ? 1 : Fields::count_varints(field.bytes);
  }
  if (opcode != "all-gather" && opcode != "all-gather-start") return;
  ++gathers.ops;
  gathers.tensors += operands;
}

}  // namespace

// HloModuleProtoWithConfig: 1, the module. HloModuleProto: 3, computations, of which 2 are
// instructions.
HloGathers count_gathers(std::string_view module, bool with_config) {
  HloGathers gathers;
  if (with_config) {
    std::string_view inner;
    for (Fields field(module); field.next();) {
      if (field.number == 1) inner = field.bytes;
    }
    return count_gathers(inner, false);
  }
  for (Fields field(module); field.next();) {
    if (field.number != 3) continue;
    for (Fields part(field.bytes); part.next();) {
      if (part.number == 2) count_instruction(part.bytes, gathers);
    }
  }
  return gathers;
}

}  // namespace tessera::xla
