#include "tables/thrift_compact.h"

namespace tessera {

void ThriftReader::skip(Type type) {
  switch (type) {
    case kTrue:
    case kFalse: return;  // the type is the value
    case kByte: return skip_bytes(1);
    case kInt16:
    case kInt32:
    case kInt64: number(); return;
    case kDouble: return skip_bytes(8);
    case kBinary: binary(type); return;
    case kList:
    case kSet:
      return read_list(type, [&](Type element) {
        // Truth values in a list have a byte each.
        element == kTrue || element == kFalse ? skip_bytes(1) : skip(element);
      });
    case kMap: {
      Depth depth(*this);
      const uint64_t count = number();
      if (count == 0) return;
      if (count > bytes_.size() - position_) throw EndOfThrift();
      const uint8_t types = byte();
      for (uint64_t i = 0; i < count; ++i) {
        for (int part : {types >> 4, types & 15}) {
          const auto of = static_cast<Type>(part);
          of == kTrue || of == kFalse ? skip_bytes(1) : skip(of);
        }
      }
      return;
    }
    case kStruct: return read_struct([](int64_t, Type) { return false; });
    case kUuid: return skip_bytes(16);
    case kStop: break;
  }
  throw Damaged("a structure has a field of an unknown type");
}

}  // namespace tessera
