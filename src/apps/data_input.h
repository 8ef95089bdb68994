#pragma once
#include <memory>
#include <string>

#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "data/record_encoder.h"
#include "data/token_encoder.h"
#include "options/option_parser.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// What `tessera data` reads documents of, and what makes them tokens.
struct DataInput {
  std::string name;  // for messages
  DatasetFiles files;
  DocumentReaderOptions reading;
  std::unique_ptr<Tokenizer> tokenizer;    // null: none was given
  std::unique_ptr<RecordEncoder> encoder;  // of conversations
  int64_t vocab_size = 0;                  // of the tokenizer, or --vocab_size for rows of ids

  bool is_text() const { return reading.kind == RecordKind::kText; }
  // Whether the documents can become tokens.
  bool has_tokens() const {
    return tokenizer || (reading.kind == RecordKind::kIds && vocab_size > 0);
  }
  // How they do, without a source of them.
  EncodingJob encoding(bool append_eos) const;
};

// Finds the files and what they hold, and loads --tokenizer if it is given or `needs_tokens`.
// UserError and UsageError.
DataInput open_data_input(const ParsedOptions& parsed, const DatasetNames& names,
                          bool needs_tokens);

// Threads of --threads, or one a core.
int threads_of(const ParsedOptions& parsed);

}  // namespace tessera
