// Reads one column of a table on one thread, all batches in order, a round for each line of
// standard input: bench/vs_pyarrow runs it beside pyarrow.
//
//   table_speed FILE COLUMN
//
// A line a round: CPU seconds, rows, bytes of text, integers, and the sum of the integers modulo
// 2^64, which is not part of the time.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tables/table.h"

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 3) {
    std::fputs("usage: table_speed FILE COLUMN\n", stderr);
    return 2;
  }
  try {
    TableBatch batch;
    for (std::string line; std::getline(std::cin, line);) {
      std::clock_t spent = 0;
      size_t rows = 0, bytes = 0, integers = 0;
      uint64_t sum = 0;
      std::clock_t start = std::clock();
      auto table = open_table(std::make_shared<ReadFile>(argv[1]));
      const std::vector<size_t> columns{table->column(argv[2])};
      for (int64_t i = 0; i < table->batches(); ++i) {
        table->read(i, columns, batch);
        spent += std::clock() - start;
        rows += batch.rows;
        bytes += batch.columns[0].bytes.size();
        integers += batch.columns[0].integers.size();
        for (int64_t value : batch.columns[0].integers) sum += static_cast<uint64_t>(value);
        start = std::clock();
      }
      std::printf("%.6f %zu %zu %zu %llu\n", static_cast<double>(spent) / CLOCKS_PER_SEC, rows,
                  bytes, integers, static_cast<unsigned long long>(sum));
      std::fflush(stdout);
    }
  } catch (const UserError& error) {
    std::fprintf(stderr, "table_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
