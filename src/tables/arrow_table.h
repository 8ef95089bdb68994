#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "tables/table.h"

namespace tessera {

// Arrow IPC (https://arrow.apache.org/docs/format/Columnar.html): streams and files. Record batches
// that are not packed are read by the rows that are asked for; of packed ones the columns that are
// asked for are unpacked whole and kept until another record batch is read.
// Damaged or Unsupported (table_error.h) where it cannot be opened.
std::unique_ptr<TableReader> open_arrow(std::shared_ptr<const ByteSource> source, TableForm form);

// `first`: the first 8 bytes of the source.
bool is_arrow_stream(const ByteSource& source, std::span<const std::byte> first);

}  // namespace tessera
