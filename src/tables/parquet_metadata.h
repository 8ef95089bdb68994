#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "tables/table.h"

namespace tessera {

enum class ParquetType : uint8_t {  // as the file numbers them
  kBool = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kText = 6,
  kFixedText = 7,
};

// What a file says of a type beyond its ParquetType.
enum class ParquetMeaning : uint8_t {
  kNone,
  kText,
  kList,
  kMap,
  kSigned,
  kUnsigned,
  kNull,
  kOther
};

struct ParquetNode {
  enum Repetition : uint8_t { kRequired = 0, kOptional = 1, kRepeated = 2 };
  std::string name, description;
  Repetition repetition = kRequired;
  ParquetType type = ParquetType::kBool;  // of a leaf
  ParquetMeaning meaning = ParquetMeaning::kNone;
  // The levels of a value that is there down to this node (Dremel's): how many optional and
  // repeated nodes, how many repeated ones lie between the root and here, this one included.
  uint8_t definition = 0, repetitions = 0;
  // The leaves below: [first_leaf, end_leaf). A leaf has itself.
  size_t first_leaf = 0, end_leaf = 0;
  std::vector<ParquetNode> children;

  bool is_leaf() const { return children.empty(); }
};

// The elements of a list or map: its repeated field, or what is inside that. Null where `node` is
// neither.
const ParquetNode* list_element(const ParquetNode& node);

struct ParquetChunk {
  int64_t first_page = 0;  // in the file
  int64_t bytes = 0;       // of all pages as they are stored
  int64_t values = 0;      // nulls included
  int8_t codec = 0;
  bool encrypted = false, elsewhere = false;  // in another file
};

struct ParquetRowGroup {
  int64_t rows = 0, bytes = 0;       // bytes: unpacked
  std::vector<ParquetChunk> chunks;  // one a leaf
};

struct ParquetMetadata {
  ParquetNode root;
  std::vector<const ParquetNode*> leaves;  // into root
  std::vector<ParquetRowGroup> row_groups;
};

// Reads the footer. Damaged or Unsupported where it is none.
void read_parquet_metadata(const ByteSource& source, ParquetMetadata& out);

struct ParquetPage {
  enum Kind : int { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
  int kind = kData;
  int64_t raw_bytes = 0, bytes = 0;
  std::optional<uint32_t> crc;  // CRC-32 of the page as it is stored
  int64_t values = 0;           // nulls included
  int64_t rows = -1;            // kDataV2
  int encoding = 0, definition_encoding = 3, repetition_encoding = 3;
  int64_t definition_bytes = 0, repetition_bytes = 0;  // kDataV2
  bool packed = true;                                  // kDataV2: whether the codec was used
};

// The header of a page that begins with `bytes`; how many bytes it takes. EndOfThrift
// (thrift_compact.h) where it is longer than `bytes`.
size_t parse_parquet_page(std::span<const std::byte> bytes, ParquetPage& out);

}  // namespace tessera
