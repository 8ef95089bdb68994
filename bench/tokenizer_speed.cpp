// Encodes documents on one thread, a round for each line of standard input: bench/vs_hf_tokenizers
// runs it beside Hugging Face's tokenizers.
//
//   tokenizer_speed TOKENIZER TEXT
//
// The documents of the file TEXT are separated by zero bytes. A line a round: CPU seconds, number
// of ids, and sum((i + 1) * ids[i]) modulo 2^64 over all documents.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 3) {
    std::fputs("usage: tokenizer_speed TOKENIZER TEXT\n", stderr);
    return 2;
  }
  try {
    auto tokenizer = load_tokenizer(argv[1]);
    const std::string text = read_file(argv[2]);
    std::vector<std::string_view> documents = split(text, '\0');
    std::vector<int32_t> ids;
    for (std::string line; std::getline(std::cin, line);) {
      ids.clear();
      std::clock_t start = std::clock();
      for (std::string_view document : documents) tokenizer->encode(document, ids);
      double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      uint64_t sum = 0;
      for (size_t i = 0; i < ids.size(); ++i) sum += (i + 1) * static_cast<uint64_t>(ids[i]);
      std::printf("%.6f %zu %llu\n", seconds, ids.size(), static_cast<unsigned long long>(sum));
      std::fflush(stdout);
    }
  } catch (const UserError& error) {
    std::fprintf(stderr, "tokenizer_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
