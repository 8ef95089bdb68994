// The control plane: what the ranks say to each other beside the collectives, from any thread and
// in any order.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/interruption.h"
#include "base/text.h"
#include "comm/connect.h"
#include "comm/control_inbox.h"
#include "tests/comm/rank_suite.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

using Controls = RankSuite;

TEST_P(Controls, TextsOfAllRanks) {
  run([](Channels& channels) {
    Control& control = *channels.control;
    for (int i = 0; i < 50; ++i) control.barrier("a barrier");
    std::string own(static_cast<size_t>(control.rank()) * 7, 'x');
    std::vector<std::string> all = control.exchange("texts", own);
    require(all.size() == static_cast<size_t>(control.world_size()), "one text a rank");
    for (size_t rank = 0; rank < all.size(); ++rank)
      require(all[rank] == std::string(rank * 7, 'x'), cat("the text of rank ", rank));
    require(!control.any("stop", false), "nobody");
    require(control.any("stop", control.rank() == 0), "rank 0");
  });
}

// As a save does, which goes on where the process is asked to end.
TEST_P(Controls, WorkIsAskedToEndAsWhoeverWaitsForIt) {
  run([](Channels& channels) {
    const std::atomic<bool> never = false;
    bool asked = true, asked_without = false;
    request_interruption();
    {
      InterruptedBy nothing(never);
      while_others_wait(*channels.control, true, "work", [&] { asked = interrupted(); });
    }
    while_others_wait(*channels.control, true, "work", [&] { asked_without = interrupted(); });
    channels.control->barrier("all were asked");
    clear_interruption();
    require(!asked, "by requests to the process");
    require(asked_without, "by nothing");
  });
}

// Of several frames, and of whole ones to the byte.
std::string long_text(int rank, size_t size) {
  std::string text(size, 'a');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 7 + i / 256) % 251);
  return text + cat(rank);
}

TEST_P(Controls, LargeTexts) {
  run([](Channels& channels) {
    Control& control = *channels.control;
    constexpr size_t kFrame = 64 << 10;
    for (size_t size :
         {kFrame - 20, kFrame - 19, kFrame - 18, kFrame, 2 * kFrame, size_t{1'000'000}}) {
      auto all = control.exchange("manifest", long_text(control.rank(), size));
      for (int rank = 0; rank < control.world_size(); ++rank) {
        require(all[static_cast<size_t>(rank)] == long_text(rank, size),
                cat("the text of rank ", rank, " of ", size, " bytes"));
      }
    }
  });
}

// Runs each on a thread of its own; throws what the first of them threw.
void on_threads(const std::vector<std::function<void()>>& works) {
  std::vector<std::exception_ptr> failures(works.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < works.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        works[i]();
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void exchange_numbers(Control& control, const std::string& tag, int calls) {
  for (int i = 0; i < calls; ++i) {
    auto all = control.exchange(tag, cat(tag, " ", control.rank(), " ", i));
    for (size_t rank = 0; rank < all.size(); ++rank)
      require(all[rank] == cat(tag, " ", rank, " ", i), all[rank]);
  }
}

// While a collective is under way on some ranks, others have yet to say something that it waits
// for.
TEST_P(Controls, CollectivesAndTextsInAnyOrder) {
  run([](Channels& channels) {
    Communicator& communicator = *channels.communicator;
    Control& control = *channels.control;
    for (int i = 0; i < 10; ++i) {
      int32_t one = 1, all = 0;
      CommCall call{.action = CommAction::kAllReduce,
                    .group = &communicator.world(),
                    .dtype = DType::kI32,
                    .output_dtype = DType::kI32,
                    .inner = 1,
                    .input = &one,
                    .output = &all,
                    .label = "sum"};
      bool early = (communicator.rank() + i) % 2 == 0;
      Communicator::Ticket ticket = early ? communicator.start(call) : 0;
      exchange_numbers(control, "between", 2);
      if (!early) ticket = communicator.start(call);
      communicator.wait(ticket);
      require(all == communicator.world_size(), "the sum");
    }
  });
}

TEST_P(Controls, ThreadsDoNotWaitForEachOther) {
  run([](Channels& channels) {
    Communicator& communicator = *channels.communicator;
    Control& control = *channels.control;
    // Each thread begins with another delay on every rank.
    auto delayed = [&](int thread, std::function<void()> work) -> std::function<void()> {
      return [=, rank = control.rank()] {
        std::this_thread::sleep_for(milliseconds((rank + thread) % 3 * 20));
        work();
      };
    };
    on_threads({delayed(0, [&] { exchange_numbers(control, "memory", 100); }),
                delayed(1, [&] { exchange_numbers(control, "health", 100); }),
                delayed(2,
                        [&] {
                          for (int i = 0; i < 3; ++i)
                            control.exchange("manifest", long_text(control.rank(), 300'000));
                        }),
                delayed(0, [&] {
                  std::vector<float> ones(100'000, 1.f), sums(100'000);
                  for (int i = 0; i < 20; ++i) {
                    communicator.run({.action = CommAction::kAllReduce,
                                      .group = &communicator.world(),
                                      .dtype = DType::kF32,
                                      .output_dtype = DType::kF32,
                                      .inner = 100'000,
                                      .input = ones.data(),
                                      .output = sums.data(),
                                      .label = "gradients"});
                    require(sums[7] == static_cast<float>(control.world_size()), "sums");
                  }
                })});
  });
}

// One of the ranks is in tag x when the other is in y, and the other way round.
TEST_P(Controls, TagsInOtherOrders) {
  run([](Channels& channels) {
    Control& control = *channels.control;
    bool odd = control.rank() % 2 == 1;
    for (int i = 0; i < 5; ++i) {
      on_threads({[&] { exchange_numbers(control, odd ? "x" : "y", 3); },
                  [&] {
                    std::this_thread::sleep_for(milliseconds(5));
                    exchange_numbers(control, odd ? "y" : "x", 3);
                  }});
    }
  });
}

std::string test_name(const testing::TestParamInfo<std::tuple<int, Way>>& info) {
  return name(std::get<1>(info.param)) + std::to_string(std::get<0>(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, Controls,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(Way::kThreads, Way::kStagedThreads,
                                                          Way::kSharedMemory, Way::kGloo,
                                                          Way::kMix)),
                         test_name);

TEST(Control, OfOneRankOpensNothing) {
  auto open_files = [] {
    auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  auto before = open_files();
  Channels channels = connect({}, nullptr, {});
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(channels.control->exchange("alone", "text"), std::vector<std::string>{"text"});
  channels.control->barrier("alone");
  EXPECT_TRUE(channels.control->any("alone", true));
}

TEST(ControlInbox, PutsTheBytesOfAMessageTogether) {
  Health health(2);
  ControlInbox inbox(2, health);
  std::string message = control_message("tag", "exchange", "one text");
  ControlInbox::TimePoint heard{};
  EXPECT_FALSE(inbox.take(1, "tag", milliseconds(1), heard));
  EXPECT_TRUE(inbox.put(1, message.substr(0, 15), message.size() - 15));
  EXPECT_EQ(heard, ControlInbox::TimePoint{});
  EXPECT_FALSE(inbox.take(1, "tag", milliseconds(1), heard));
  EXPECT_NE(heard, ControlInbox::TimePoint{});  // so its sender is at work
  EXPECT_TRUE(inbox.put(1, message.substr(15), 0));
  EXPECT_TRUE(inbox.put(1, control_message("tag", "barrier", ""), 0));
  EXPECT_FALSE(inbox.take(1, "other", milliseconds(1), heard));
  auto letter = inbox.take(1, "tag", milliseconds(0), heard);
  ASSERT_TRUE(letter);
  EXPECT_EQ(letter->kind, "exchange");
  EXPECT_EQ(letter->text, "one text");
  EXPECT_EQ(inbox.take(1, "tag", milliseconds(0), heard).value().kind, "barrier");
  EXPECT_FALSE(inbox.put(1, "no message", 0));
}

// As of a rank that was stopped: when it goes on, the others have given it up.
TEST(Health, WhatOthersSaidBeforeADeadlineIsTheCause) {
  Health health(2);
  std::thread news([&] {
    std::this_thread::sleep_for(milliseconds(20));
    health.fail("rank 0 did not answer rank 1 within 1 s");
  });
  health.fail_late(1, 0, milliseconds(1000));
  EXPECT_EQ(health.cause(), "rank 0 did not answer rank 1 within 1 s");
  news.join();
  Health alone(2);
  alone.fail_late(1, 0, milliseconds(1000));
  EXPECT_EQ(alone.cause(), "rank 1 did not answer rank 0 within 1 s");
}

// Whoever waits no more because its deadline is over, and looks for a reason, is still asked by
// others.
TEST(Health, SaysForWhomItWaitedWhileItFails) {
  Health health(3);
  std::thread late([&] { health.fail_late(1, 0, milliseconds(1000)); });
  int seen = Health::kNobody;
  while (!health.failed() && seen == Health::kNobody) {
    seen = health.waits_for(0).rank;
    std::this_thread::yield();
  }
  late.join();
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(health.waits_for(0).rank, Health::kNobody);
}

// What looks at a rank's threads finds them where they wait; who else finds a failure waits for the
// first to be told.
TEST(Health, IsLookedAtBeforeAnybodyHears) {
  Health health(2);
  std::atomic<int> looked = 0;
  std::thread second;
  health.on_failure([&](const std::string&) { EXPECT_EQ(looked, 1); });
  health.before_failure([&](const std::string& cause) {
    EXPECT_EQ(cause, "first");
    second = std::thread([&] {
      health.fail("second");
      EXPECT_TRUE(health.failed());
    });
    health.fail("within");  // by what looks
    EXPECT_FALSE(health.wait_failed(milliseconds(20)));
    ++looked;
  });
  health.fail("first");
  second.join();
  EXPECT_EQ(health.cause(), "first");
  health.before_failure([&](const std::string& cause) {
    EXPECT_EQ(cause, "first");
    ++looked;
  });
  EXPECT_EQ(looked, 2);
}

}  // namespace
}  // namespace tessera
