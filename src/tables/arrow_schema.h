#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tables/flatbuffer.h"
#include "tables/table.h"

namespace tessera {

// What this program tells apart of Arrow's types.
enum class ArrowKind {
  kNull,
  kBool,
  kInteger,
  kFloat,     // 16, 32 or 64 bits
  kText,      // utf8 and binary with offsets of 32 or 64 bits
  kTextView,  // utf8_view and binary_view
  kList,      // list and map, offsets of 32 or 64 bits
  kFixedSizeList,
  kStruct,
  kOther,    // how many buffers it has is known
  kUnknown,  // not even that
};

struct ArrowField {
  std::string name, description;
  ArrowKind kind = ArrowKind::kUnknown;
  int bits = 0;           // of an integer or float, or of an offset
  bool is_signed = true;  // integers
  int64_t list_size = 0;  // kFixedSizeList
  int buffers = 0;        // of its own, beside those of its children
  bool variadic = false;  // and as many more as a record batch says
  std::vector<ArrowField> children;
  // Dictionary-encoded: what lies in a record batch is integers, by which `values` are found.
  std::optional<int64_t> dictionary;
  std::vector<ArrowField> values;  // one, where there is a dictionary
};

// The fields of a Schema table. Damaged or Unsupported where they make no table.
std::vector<ArrowField> parse_arrow_schema(const FlatTable& schema);

ColumnType column_type(const ArrowField& field);

}  // namespace tessera
