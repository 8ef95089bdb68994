// A stream that waits for its data.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/interruption.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "data/stream_reader.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

TEST(WaitingStream, ARequestToEndIsAnsweredWhileThereIsNoBatch) {
  ScratchDirectory directory;
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += cat(R"({"text": ")", std::string(static_cast<size_t>(20 + i % 7), 'a'), "\"}\n");
  StreamSettings all;
  all.lanes = 12;
  all.context = 16;
  std::atomic<int> documents{0};
  std::atomic<bool> goes_on{false};
  const auto encode = [&](const Record& record, TokenDocument& out) {
    out.ids.assign(record.text.begin(), record.text.end());
    while (++documents > 100 && !goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  const std::vector files{directory.write("lines.json", lines)};
  all.sources.push_back({local_entries(files), 1, {}, encode});
  StreamReader reader(all, {.rows = 4, .ranks = 1, .rank = 0});
  Batch batch;
  reader.keep();
  reader.next(batch);
  const int64_t position = reader.position();
  const std::string state = to_bytes(reader.state());
  reader.keep();
  reader.next(batch);
  request_interruption();
  EXPECT_THROW(while (reader.next(batch)){}, Interrupted);
  clear_interruption();
  EXPECT_GT(reader.position(), position);
  reader.take_back();
  EXPECT_EQ(reader.position(), position);
  EXPECT_EQ(to_bytes(reader.state()), state);
  goes_on = true;
}

}  // namespace
}  // namespace tessera
