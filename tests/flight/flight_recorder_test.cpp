// From events to a ring and back.
#include "flight/flight_recorder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "flight/ring_reader.h"
#include "ops/primitive/elementwise.h"
#include "runtime/host_executable.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/comm/thread_channels.h"
#include "tests/runtime/number_kernels.h"

namespace tessera {
namespace {

// (-x + x) * x, the product in a scope of layer 3.
Graph program() {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{8}, DType::kF32});
  Value sum = add(g, unary(g, UnaryKind::kNeg, x), x);
  LayerScope layer(g, 3);
  Scope part(g, "mlp");
  g.output("product", mul(g, sum, x));
  return g;
}

class FlightRecorderTest : public testing::Test {
 protected:
  FlightRecorderTest() : executable_(compile(program(), number_kernels())) {
    arenas_ = std::make_unique<HostArenas>(executable_->memory());
    executable_->bind(state_, *arenas_);
  }
  std::unique_ptr<FlightRecorder> recorder(int64_t events, int rank = 0, int world = 1) const {
    return std::make_unique<FlightRecorder>(FlightRecorder::Settings{.directory = directory_.path(),
                                                                     .events = events,
                                                                     .rank = rank,
                                                                     .world_size = world,
                                                                     .job = "job",
                                                                     .attempt = 2});
  }
  void run() { executable_->run({{"x", x_.data()}}); }
  RankFlight read(int rank = 0) const {
    const ReadFile texts(texts_path(directory_.path(), rank));
    return read_ring(ReadFile(ring_path(directory_.path(), rank)), &texts);
  }

  ScratchDirectory directory_;
  std::vector<float> x_ = std::vector<float>(8, 2.0f);
  HostState state_;
  std::unique_ptr<HostArenas> arenas_;
  std::unique_ptr<HostExecutable> executable_;
};

TEST_F(FlightRecorderTest, HoldsWhatRanAndItsNames) {
  auto flight = recorder(1000);
  flight->add_program("forward", *executable_);
  flight->begin_step(17);
  run();
  flight->doing("validating");
  const RankFlight read = this->read();
  EXPECT_EQ(read.rank, 0);
  EXPECT_EQ(read.attempt, 2);
  EXPECT_EQ(read.job, "job");
  EXPECT_EQ(read.process, ::getpid());
  EXPECT_EQ(read.step, 17);
  EXPECT_EQ(read.text(read.doing), "validating");
  EXPECT_EQ(maker_state(read.maker), MakerState::kRunning);
  const size_t instructions = executable_->plan()->instructions.size();
  ASSERT_EQ(read.events.size(), instructions + 4);
  EXPECT_EQ(read.events[0].event, RingEvent::kStep);
  EXPECT_EQ(read.events[0].number, 17);
  EXPECT_EQ(read.events[1].event, RingEvent::kProgramBegins);
  EXPECT_EQ(read.text(read.events[1].text), "forward");
  std::vector<std::string> done;
  for (const FlightEvent& event : read.events)
    if (event.event == RingEvent::kDone) done.push_back(read.text(event.text));
  EXPECT_EQ(done.back(), "mul in layers.3.mlp (forward)");
  EXPECT_EQ(read.find(read.events[instructions + 1].text)->layer, 3);
  EXPECT_EQ(read.find(read.events[instructions + 1].text)->bytes, 32);
  EXPECT_NEAR(read.wall_seconds(read.events[0].time), static_cast<double>(::time(nullptr)), 60);
}

TEST_F(FlightRecorderTest, KeepsTheLastEventsWhenItIsFull) {
  auto flight = recorder(7);
  for (int i = 0; i < 100; ++i) flight->begin_step(i);
  const RankFlight read = this->read();
  ASSERT_EQ(read.events.size(), 7u);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(read.events[i].number, 93 + static_cast<int64_t>(i));
  EXPECT_EQ(read.events_so_far, 100u);
}

TEST_F(FlightRecorderTest, WhatIsBeingWrittenIsLeftOut) {
  auto flight = recorder(100);
  for (int i = 0; i < 5; ++i) flight->begin_step(i);
  flight->ring().records()[2].sequence = 0;   // half written
  flight->ring().records()[3].sequence = 99;  // of another place
  const RankFlight read = this->read();
  ASSERT_EQ(read.events.size(), 3u);
  EXPECT_EQ(read.events[2].number, 4);
}

TEST_F(FlightRecorderTest, TwoThreadsWriteAtOnce) {
  auto flight = recorder(4096);
  auto write = [&] {
    for (int i = 0; i < 20'000; ++i) flight->begin_step(i);
  };
  std::thread other(write);
  write();
  other.join();
  const RankFlight read = this->read();
  EXPECT_EQ(read.events.size(), 4096u);
  EXPECT_EQ(read.events_so_far, 40'000u);
}

TEST_F(FlightRecorderTest, CountsExchangesAndCallsByGroupAndTag) {
  auto hub = std::make_shared<ThreadHub>(2);
  std::vector<std::unique_ptr<FlightRecorder>> flights;
  for (int rank = 0; rank < 2; ++rank) flights.push_back(recorder(1000, rank, 2));
  auto work = [&](int rank) {
    Channels channels = thread_channels(hub, rank, {});
    channels.communicator->listen(flights[static_cast<size_t>(rank)].get());
    channels.control->listen(flights[static_cast<size_t>(rank)].get());
    float in = 1, out = 0;
    for (int i = 0; i < 3; ++i) {
      CommCall call;
      call.action = CommAction::kAllReduce;
      call.group = &channels.communicator->world();
      call.inner = 1;
      call.input = &in;
      call.output = &out;
      call.label = i == 0 ? "first" : "loss";
      channels.communicator->run(call);
    }
    channels.control->barrier("a tag");
    channels.control->any("another", rank == 0);
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  for (int rank = 0; rank < 2; ++rank) {
    const RankFlight read = this->read(rank);
    ASSERT_EQ(read.meetings.size(), 3u);
    EXPECT_EQ(read.text(read.meetings[0].text), "loss");
    EXPECT_EQ(read.meetings[0].begun, 3);
    EXPECT_EQ(read.meetings[0].state, RingMeetingState::kOver);
    EXPECT_EQ(read.find(read.meetings[0].text)->ranks, "0-1");
    EXPECT_EQ(read.find(read.meetings[0].text)->group, "world");
    EXPECT_EQ(read.text(read.meetings[1].text), "'a tag' (barrier of all ranks)");
    EXPECT_EQ(read.meetings[1].begun, 1);
    EXPECT_TRUE(read.meetings[2].is_control);
    EXPECT_EQ(read.events.size(), 10u);
  }
}

TEST_F(FlightRecorderTest, RefusesWhatIsNoRing) {
  recorder(10)->begin_step(1);
  const std::filesystem::path path = ring_path(directory_.path(), 0);
  const std::string whole = read_file(path);
  auto refused = [&](std::string bytes, const std::string& why) {
    directory_.write("rank_0.ring", bytes);
    expect_contains(user_error([&] { read_ring(ReadFile(path), nullptr); }), why);
  };
  refused("", "too short");
  refused(whole.substr(0, sizeof(RingHeader) - 1), "too short");
  refused(whole.substr(0, whole.size() - 1), "cut short");
  refused("X" + whole.substr(1), "does not begin as one");
  std::string changed = whole;
  changed[8] = 9;
  refused(changed, "it has version 9");
  changed = whole;
  changed[16 + 7] = 1;  // capacity
  refused(changed, "cut short");
  directory_.write("rank_0.ring", whole);
  const RankFlight nameless = read_ring(ReadFile(path), nullptr);
  EXPECT_EQ(nameless.events.size(), 1u);
}

TEST_F(FlightRecorderTest, TakesOnlyTheNewestJobOfADirectory) {
  expect_contains(user_error([&] { read_flights(directory_ / "none"); }), "cannot read");
  expect_contains(user_error([&] { read_flights(directory_.path()); }), "no rings");
  recorder(10, 5, 6);
  FlightRecorder newer({.directory = directory_.path(), .rank = 1, .world_size = 2, .job = "b"});
  directory_.write("rank_9.ring", "broken");
  const FlightDirectory read = read_flights(directory_.path());
  ASSERT_EQ(read.ranks.size(), 1u);
  EXPECT_EQ(read.ranks[0].job, "b");
  ASSERT_EQ(read.warnings.size(), 2u);
  newer.remove_files();
  EXPECT_FALSE(std::filesystem::exists(ring_path(directory_.path(), 1)));
}

// An earlier job may have been restarted more often, and have had more ranks.
TEST_F(FlightRecorderTest, TakesTheAttemptThatBeganLast) {
  auto in = [&](const char* folder, int rank, int world) {
    return FlightRecorder({.directory = directory_ / folder,
                           .events = 10,
                           .rank = rank,
                           .world_size = world,
                           .job = "port_1",
                           .attempt = folder[8] - '0'});
  };
  { auto old = in("attempt_0", 1, 2), restarted = in("attempt_2", 0, 2); }
  auto newest = in("attempt_0", 0, 1);
  const FlightDirectory read = read_flights(directory_.path());
  EXPECT_EQ(read.path, directory_ / "attempt_0");
  ASSERT_EQ(read.ranks.size(), 1u);
  EXPECT_EQ(read.ranks[0].world_size, 1);
  EXPECT_EQ(ring_maker_state(ring_path(directory_ / "attempt_0", 0)), MakerState::kRunning);
}

TEST_F(FlightRecorderTest, AnUnwritableDirectoryIsAnError) {
  directory_.write("file", "");
  expect_contains(user_error([&] { FlightRecorder({.directory = directory_ / "file" / "below"}); }),
                  "cannot");
}

}  // namespace
}  // namespace tessera
