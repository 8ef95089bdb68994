// Prints a table as table_goldens.py expects it:  table_dump [--backwards] FILE...
// Before each table a line "table FILE"; what cannot be read is a line "error: ...".
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "tables/table.h"
#include "tests/tables/table_text.h"

int main(int argc, char** argv) {
  using namespace tessera;
  bool backwards = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--backwards") == 0) {
      backwards = true;
      continue;
    }
    std::printf("table %s\n", argv[i]);
    try {
      auto table = open_table(std::make_shared<ReadFile>(argv[i]));
      const std::string text = table_text(*table, backwards);
      std::fwrite(text.data(), 1, text.size(), stdout);
    } catch (const UserError& error) {
      std::printf("error: %s\n", error.what());
    }
  }
  return 0;
}
