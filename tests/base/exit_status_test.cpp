#include "base/exit_status.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

TEST(ExitStatus, TheDocumentHasTheSameTable) {
  const std::string page = read_file(TESSERA_SOURCE_DIR "/docs/guards.md");
  std::string table;
  int before = -1;
  for (const ExitStatus& row : kExitStatuses) {
    EXPECT_GT(row.status, before);
    before = row.status;
    table += cat("| ", row.status, " | ", row.meaning, " |\n");
  }
  EXPECT_NE(page.find(table), page.npos) << "docs/guards.md lacks\n" << table;
}

}  // namespace
}  // namespace tessera
