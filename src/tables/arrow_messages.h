#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/file.h"
#include "tables/arrow_schema.h"
#include "tables/byte_buffer.h"
#include "tables/table.h"

namespace tessera {

// Where a message lies in the file: its description (a flatbuffer), and the bytes behind it.
struct ArrowMessage {
  uint64_t description = 0, description_bytes = 0, body = 0, body_bytes = 0;
};

struct ArrowDictionary {
  ArrowMessage message;
  int64_t id = 0;
  bool is_delta = false;  // its values come behind those that the id has already
  size_t batches_before = 0;
};

// What a stream or a file consists of.
struct ArrowMessages {
  std::vector<ArrowField> fields;
  std::vector<ArrowMessage> record_batches;
  std::vector<ArrowDictionary> dictionaries;
  TableBatches parts;  // of the record batches
};

// Reads the description of every message of a stream, or the footer of a file and the descriptions
// it points to. Damaged where one does not lie in the source, or is none.
ArrowMessages find_arrow_messages(const ByteSource& source, TableForm form);

// The root table of a description, which is read into `bytes`.
FlatTable read_arrow_description(const ByteSource& source, const ArrowMessage& message,
                                 ByteBuffer& bytes);

// Fields of Arrow's tables Message, RecordBatch and DictionaryBatch.
enum ArrowFieldNumber : int {
  kMessageHeaderType = 1,
  kMessageHeader = 2,
  kMessageBodyLength = 3,
  kBatchLength = 0,
  kBatchNodes = 1,
  kBatchBuffers = 2,
  kBatchCompression = 3,
  kBatchVariadicCounts = 4,
  kDictionaryId = 0,
  kDictionaryData = 1,
  kDictionaryIsDelta = 2,
};

}  // namespace tessera
