// What rings that are made up mean together.
#include "flight/postmortem.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Lines: 0 program, 1-3 its instructions, 4 an exchange of ranks 0-3, 5 one of ranks 0,1 or 2,3, 6
// a tag.
RankFlight rank(int number, int world = 4) {
  RankFlight flight;
  flight.rank = number;
  flight.world_size = world;
  flight.host = "host";
  flight.start_wall = 1'700'000'000 * kSecond;
  flight.state = MakerState::kRunning;
  auto text = [&](FlightText::Kind kind, const char* verb, const char* what) {
    flight.texts.push_back({.kind = kind, .verb = verb, .what = what});
    return flight.texts.size() - 1;
  };
  flight.texts[text(FlightText::Kind::kProgram, "program", "accumulate")].instructions = 3;
  for (const char* op : {"embedding", "linear", "swiglu"}) {
    FlightText& line = flight.texts[text(FlightText::Kind::kInstruction, "run", op)];
    line.scope = "layers.3.mlp";
    line.phase = "forward";
    line.layer = 3;
    line.program = 0;
  }
  FlightText& all =
      flight.texts[text(FlightText::Kind::kExchange, "exchange", "all_gather in layers.3")];
  all.group = "shard";
  all.ranks = cat("0-", world - 1);
  FlightText& two = flight.texts[text(FlightText::Kind::kExchange, "exchange", "all_reduce")];
  two.group = "tp";
  two.ranks = number < 2 ? "0-1" : "2-3";
  flight.texts[text(FlightText::Kind::kControl, "control", "checkpoint")].action = "barrier";
  return flight;
}

void meets(RankFlight& flight, uint32_t text, int64_t number, RingMeetingState state,
           int64_t since = kSecond, int64_t over = 2 * kSecond) {
  flight.meetings.push_back({text, state, number, since, over, text == 6});
}
constexpr auto kIn = RingMeetingState::kIn, kOver = RingMeetingState::kOver,
               kFailed = RingMeetingState::kFailed;

void done(RankFlight& flight, uint32_t text, int64_t time) {
  flight.events.push_back({flight.events.size() + 1, RingEvent::kDone, text, 0, time});
}

Postmortem of(FlightDirectory& directory, std::vector<RankFlight> ranks) {
  directory.path = "dir";
  directory.ranks = std::move(ranks);
  return postmortem_of(directory, 1'700'000'011);
}

TEST(Postmortem, NamesTheRankThatDidNotComeAndWhereItIs) {
  std::vector<RankFlight> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.push_back(rank(r));
    meets(ranks.back(), 4, r == 2 ? 16 : 17, r == 2 ? kOver : kIn);
    done(ranks.back(), 1, kSecond / 2);
  }
  ranks[2].state = MakerState::kStopped;
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  ASSERT_EQ(found.waits.size(), 1u);
  EXPECT_EQ(found.waits[0].ranks, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(found.waits[0].missing, (std::vector<int>{2}));
  EXPECT_EQ(found.waits[0].number, 17);
  EXPECT_EQ(found.culprits, (std::vector<int>{2}));
  const std::vector<std::string> lines = postmortem_lines(found);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "ranks 0,1,3 wait 10.0 s for rank 2 in all_gather in layers.3, number 17 of shard "
            "(ranks 0-3)");
  EXPECT_EQ(
      lines[1],
      "rank 2, stopped (SIGSTOP or a debugger): in linear in layers.3.mlp (forward), layer 3, "
      "program accumulate");
  const std::string text = postmortem_text(found);
  expect_contains(text, "missing: 2");
  expect_contains(text, "Last events of rank 2");
  const auto json = nlohmann::json::parse(postmortem_json(found));
  EXPECT_EQ(json["culprits"], nlohmann::json({2}));
  EXPECT_EQ(json["ranks"][2]["in"], "linear in layers.3.mlp (forward)");
  EXPECT_EQ(json["ranks"][2]["layer"], 3);
}

// Rank 0 waits for 1 with all, which waits for nobody; 2 and 3 wait for each other's pair first.
TEST(Postmortem, FollowsTheChainToItsEnd) {
  std::vector<RankFlight> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(rank(r));
  meets(ranks[0], 4, 5, kIn);
  meets(ranks[1], 4, 5, kIn);
  meets(ranks[2], 4, 4, kOver);
  meets(ranks[2], 5, 9, kIn);
  meets(ranks[3], 5, 8, kOver);
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  ASSERT_EQ(found.waits.size(), 2u);
  EXPECT_EQ(found.culprits, (std::vector<int>{3}));
}

TEST(Postmortem, OfADeadJobNamesTheOneThatWasKilled) {
  std::vector<RankFlight> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.push_back(rank(r));
    ranks.back().state = MakerState::kEnded;
    if (r != 1) {
      ranks.back().end = RingEnd::kFailed;
      ranks.back().end_text = "rank 1 has gone";
    }
    // It had come, and died in it.
    meets(ranks.back(), 4, 7, r == 1 ? kIn : kFailed, r == 1 ? kSecond : 2 * kSecond, 9 * kSecond);
  }
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  EXPECT_EQ(found.culprits, (std::vector<int>{1}));
  expect_contains(postmortem_lines(found)[0], "for rank 1 in all_gather");
  expect_contains(found.ranks[1].state, "ended without a word");
}

// All failed in an exchange, to which the last one came when the others had given up.
std::vector<RankFlight> with_a_late_one(int count) {
  std::vector<RankFlight> ranks;
  for (int r = 0; r < count; ++r) {
    const bool late = r == count - 1;
    ranks.push_back(rank(r, count));
    ranks.back().end = RingEnd::kFailed;
    ranks.back().end_text = "it took too long";
    meets(ranks.back(), 4, 7, kFailed, late ? 12 * kSecond : kSecond,
          late ? 12 * kSecond + 1 : 11 * kSecond);
  }
  done(ranks.back(), 1, kSecond);
  done(ranks.back(), 2, 12 * kSecond);
  return ranks;
}

// It was stopped, and came when the others had given up.
TEST(Postmortem, WhoComesTooLateIsMissing) {
  std::vector<RankFlight> ranks = with_a_late_one(4);
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  EXPECT_EQ(found.culprits, (std::vector<int>{3}));
  EXPECT_EQ(found.ranks[3].silent_in, "linear in layers.3.mlp (forward)");
  EXPECT_DOUBLE_EQ(found.ranks[3].silent_seconds, 11);
  ASSERT_EQ(found.waits.size(), 1u);
  EXPECT_EQ(found.waits[0].ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(found.waits[0].missing, (std::vector<int>{3}));
  EXPECT_EQ(postmortem_lines(found)[1],
            "rank 3, failed: 11.0 s in linear in layers.3.mlp (forward)");

  // It ended that exchange by what the others had sent, and met their failure in the next one.
  ranks[3].meetings[0].begun = 8;
  const Postmortem further = of(directory, ranks);
  EXPECT_EQ(further.culprits, (std::vector<int>{3}));
  ASSERT_EQ(further.waits.size(), 1u);
  EXPECT_EQ(further.waits[0].missing, (std::vector<int>{3}));
}

// Rank 0 ended itself at its time limit, in the exchange; 1 was stopped, let go on, and met that.
TEST(Postmortem, WhoEndedItselfWaitedForTheOneThatWasStopped) {
  std::vector<RankFlight> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.push_back(rank(r, 3));
    ranks.back().state = MakerState::kEnded;
    meets(ranks.back(), 4, 7, r == 0 ? kIn : kFailed, kSecond, 9 * kSecond);
  }
  for (int r : {1, 2}) {
    ranks[r].end = RingEnd::kFailed;
    ranks[r].end_text = "rank 0 failed";
  }
  FlightDirectory directory;
  of(directory, ranks);
  const double end = 1'700'000'009.5;
  const Postmortem found = postmortem_of(directory, end + 2,
                                         {{0, {.status = 124, .time = end}},
                                          {1, {.status = 1, .asked = true, .stopped = true}},
                                          {2, {.status = 1, .asked = true}}});
  EXPECT_EQ(found.culprits, (std::vector<int>{1}));
  EXPECT_EQ(found.ranks[0].state, "ended itself, as no step was done in time (status 124)");
  const std::vector<std::string> lines = postmortem_lines(found);
  ASSERT_EQ(lines.size(), 2u);
  expect_contains(lines[0], "ranks 0,2 waited 8.5 s for rank 1 in all_gather");
  EXPECT_EQ(lines[1],
            "rank 1, stopped (SIGSTOP or a debugger) when the job failed: before the first step");
}

// Rank 2 was stopped in an op, and waited in the exchange for a moment when the agent let it go on.
TEST(Postmortem, WhoWasStoppedIsWhereItPausedAndNotWhereItEnded) {
  std::vector<RankFlight> ranks = with_a_late_one(3);
  for (RankFlight& each : ranks) each.state = MakerState::kEnded;
  FlightDirectory directory;
  of(directory, ranks);
  const std::map<int, RankEnd> ends{{2, {.status = 1, .asked = true, .stopped = true}}};
  auto line = [&] {
    const Postmortem found = postmortem_of(directory, 1'700'000'013, ends);
    EXPECT_EQ(found.culprits, (std::vector<int>{2}));
    return postmortem_lines(found).at(1);
  };
  EXPECT_EQ(line(),
            "rank 2, stopped (SIGSTOP or a debugger) when the job failed: 11.0 s in linear in "
            "layers.3.mlp (forward)");
  // Killed before it went on, it is where it was; its pauses were before.
  directory.ranks[2].end = RingEnd::kNone;
  EXPECT_EQ(line(),
            "rank 2, stopped (SIGSTOP or a debugger) when the job failed: in swiglu in "
            "layers.3.mlp (forward), layer 3, program accumulate");
}

TEST(Postmortem, SaysHowRanksEndedAsFarAsItIsKnown) {
  auto state = [](const std::map<int, RankEnd>& ends) {
    FlightDirectory directory;
    std::vector<RankFlight> ranks{rank(0, 1)};
    ranks[0].state = MakerState::kEnded;
    of(directory, ranks);
    const Postmortem found = postmortem_of(directory, 1'700'000'011, ends);
    return cat(found.ranks[0].state, found.culprits.empty() ? "" : " <-");
  };
  expect_contains(state({}), "ended without a word: by SIGKILL, at a time limit of its own or by");
  EXPECT_EQ(state({{0, {.signal = SIGKILL}}}),
            "ended without a word: SIGKILL, by hand or because memory ran out <-");
  EXPECT_EQ(state({{0, {.signal = SIGTERM, .asked = true}}}), "ended when tessera run asked it to");
  EXPECT_EQ(state({{0, {.status = 143, .asked = true}}}), "ended when tessera run asked it to");
  EXPECT_EQ(state({{0, {.signal = SIGKILL, .asked = true}}}),
            "did not end when tessera run asked it to, and was killed <-");
  EXPECT_EQ(state({{0, {.status = 124}}}),
            "ended itself, as no step was done in time (status 124) <-");
}

TEST(Postmortem, TellsWhoIsOutOfStepAndWhoseRingsAreMissing) {
  std::vector<RankFlight> ranks{rank(0), rank(1)};
  meets(ranks[0], 4, 7, kIn);
  meets(ranks[1], 4, 7, kIn);
  ranks[1].texts[4].what = "loss";
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  ASSERT_EQ(found.out_of_step.size(), 1u);
  expect_contains(found.out_of_step[0], "rank 0 is in all_gather in layers.3, rank 1 is in loss");
  EXPECT_EQ(found.absent, (std::vector<int>{2, 3}));
  ASSERT_EQ(found.waits.size(), 1u);
  EXPECT_EQ(found.waits[0].unknown, (std::vector<int>{2, 3}));
  expect_contains(postmortem_text(found), "Without a ring here: ranks 2,3");
}

TEST(Postmortem, OfTheControlPlaneToo) {
  std::vector<RankFlight> ranks{rank(0, 2), rank(1, 2)};
  meets(ranks[0], 6, 2, kIn);
  ranks[1].doing = kNoText;
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  EXPECT_EQ(found.culprits, (std::vector<int>{1}));
  expect_contains(
      postmortem_lines(found)[0],
      "rank 0 waits 10.0 s for rank 1 in 'checkpoint' (barrier of all ranks), number 2");
}

TEST(Postmortem, OfAJobThatIsWellNamesNobody) {
  std::vector<RankFlight> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.push_back(rank(r));
    meets(ranks.back(), 4, 7, kIn);
  }
  FlightDirectory directory;
  const Postmortem found = of(directory, ranks);
  EXPECT_TRUE(found.culprits.empty());
  EXPECT_TRUE(postmortem_lines(found).empty());
  expect_contains(postmortem_text(found), "all have come");
}

TEST(RankLists, ThereAndBack) {
  EXPECT_EQ(parse_ranks("0-3", 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(parse_ranks("1-7/3", 8), (std::vector<int>{1, 4, 7}));
  EXPECT_EQ(parse_ranks("5", 8), (std::vector<int>{5}));
  EXPECT_EQ(parse_ranks("0,1,5", 8), (std::vector<int>{0, 1, 5}));
  for (const char* text : {"", "-", "0-", "0-9", "1,,2", "0-3/0", "0-3/x", "99999999999", "-1"})
    EXPECT_TRUE(parse_ranks(text, 8).empty()) << text;
  EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8}), "0-2,5,7,8");
}

TEST(NativeReports, TheLastOneIsRead) {
  const NativeReport report = read_report(
      "== report of rank 0 of 1\nreason: old\nthread 1 'main'\n  #0 0x1 /x+0x1\n\n"
      "== report of rank 0 of 1\nreason: new\nin no op\nthread 7 'main'\n"
      "  #3 0x4 /lib/libc.so.6+0x4 _ZN7tessera5checkEv\n  #4 0x5 /bin/x+0x5\n  #5 0x6 (generated "
      "code)\nthread 8 'pool': did not answer\n");
  EXPECT_EQ(report.reason, "new");
  ASSERT_EQ(report.stacks.size(), 2u);
  EXPECT_EQ(report.stacks[0].thread, "7 'main'");
  EXPECT_EQ(report.stacks[0].frames, (std::vector<std::string>{"tessera::check() in libc.so.6",
                                                               "/bin/x+0x5", "(generated code)"}));
  EXPECT_EQ(report.stacks[1].thread, "8 'pool': did not answer");
}

}  // namespace
}  // namespace tessera
