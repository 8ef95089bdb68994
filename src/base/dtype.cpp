#include "base/dtype.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

std::string_view name(DType d) {
  switch (d) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kI64: return "i64";
    case DType::kI32: return "i32";
    case DType::kBool: return "bool";
  }
  return "?";
}

DType dtype_from_name(std::string_view text) {
  for (DType d : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32,
                  DType::kBool}) {
    if (name(d) == text) return d;
  }
  throw UserError(cat("unknown element type '", text, "'; known: f64 f32 bf16 f16 i64 i32 bool"));
}

}  // namespace tessera
