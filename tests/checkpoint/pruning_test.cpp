#include "checkpoint/pruning.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

CheckpointOrigin run_of(char digit) { return {std::string(32, digit), std::string(32, 'f')}; }

// The reasons by name; "-" in front of those that go.
std::map<std::string, std::string> choices(const fs::path& directory, const PruningRule& rule) {
  std::map<std::string, std::string> reasons;
  for (const PruningChoice& choice : choose_for_pruning(directory, rule))
    reasons[choice.entry.path.filename()] = (choice.goes ? "-" : "") + choice.reason;
  return reasons;
}

using Reasons = std::map<std::string, std::string>;

TEST(Pruning, KeepsTheNewestTheRegularAndTheBest) {
  ScratchDirectory scratch;
  for (int64_t step = 10; step <= 80; step += 10)
    save(scratch.path(), step, 0, "llama", "{}", run_of('a'));
  EXPECT_EQ(choices(scratch.path(), {.keep = 2}), (Reasons{{"llama-80steps", "newest"},
                                                           {"llama-70steps", "newest 2"},
                                                           {"llama-60steps", "-older"},
                                                           {"llama-50steps", "-older"},
                                                           {"llama-40steps", "-older"},
                                                           {"llama-30steps", "-older"},
                                                           {"llama-20steps", "-older"},
                                                           {"llama-10steps", "-older"}}));
  PruningRule rule{1, 40, [](const fs::path& newest) {
                     EXPECT_EQ(newest.filename(), "llama-80steps");
                     return "llama-50steps";
                   }};
  Reasons found = choices(scratch.path(), rule);
  EXPECT_EQ(found["llama-80steps"], "newest");
  EXPECT_EQ(found["llama-70steps"], "-older");
  EXPECT_EQ(found["llama-50steps"], "best");
  EXPECT_EQ(found["llama-40steps"], "every 40");
  EXPECT_EQ(found["llama-30steps"], "-older");
}

TEST(Pruning, NeverRemovesTheNewestCompleteOne) {
  ScratchDirectory scratch;
  for (int64_t step : {10, 20, 30}) save(scratch.path(), step, 0, "llama", "{}", run_of('a'));
  fs::resize_file(scratch / "llama-30steps/state.safetensors", 3);
  fs::create_directory(scratch / "llama-40steps");
  Reasons found = choices(scratch.path(), {.keep = 1});
  expect_contains(found["llama-40steps"], "not complete: ");
  expect_contains(found["llama-30steps"], "has 3 bytes instead of");
  EXPECT_EQ(found["llama-20steps"], "newest");
  EXPECT_EQ(found["llama-10steps"], "-older");
}

TEST(Pruning, CountsEveryRunOnItsOwn) {
  ScratchDirectory scratch;
  for (int64_t step : {10, 20}) {
    save(scratch.path(), step, 0, "llama", "{}", run_of('a'));
    save(scratch.path(), step + 1, 0, "llama", "{}", run_of('b'));
    save(scratch.path(), step, 0, "gpt2", "{}", run_of('a'));
  }
  Reasons found = choices(scratch.path(), {.keep = 1});
  for (const char* name : {"llama-20steps", "llama-21steps", "gpt2-20steps"})
    EXPECT_EQ(found[name], "newest") << name;
  for (const char* name : {"llama-10steps", "llama-11steps", "gpt2-10steps"})
    EXPECT_EQ(found[name], "-older") << name;
}

TEST(Pruning, OfTwoOfAStepTheReplacedOneGoes) {
  ScratchDirectory scratch;
  save(scratch.path(), 10, 0, "llama", "{}", run_of('a'));
  fs::copy(scratch / "llama-10steps", scratch / "llama-10steps.replaced",
           fs::copy_options::recursive);
  Reasons found = choices(scratch.path(), {.keep = 1});
  EXPECT_EQ(found["llama-10steps"], "newest");
  EXPECT_EQ(found["llama-10steps.replaced"], "-replaced");
  // While the new one is not there, or not whole, it is as good.
  fs::remove(scratch / "llama-10steps/run.json");
  EXPECT_EQ(choices(scratch.path(), {.keep = 1})["llama-10steps.replaced"], "newest");
  fs::remove_all(scratch / "llama-10steps");
  EXPECT_EQ(choices(scratch.path(), {.keep = 1}), (Reasons{{"llama-10steps.replaced", "newest"}}));
}

TEST(Pruning, LooksPastLeftoversAndLinks) {
  ScratchDirectory scratch;
  for (int64_t step : {10, 20}) save(scratch.path(), step, 0, "llama", "{}", run_of('a'));
  fs::create_directory(scratch / "llama-30steps.tmp-123");
  make_file(scratch / "llama-40steps");
  fs::create_directory_symlink(scratch / "llama-10steps", scratch / "llama-5steps");
  EXPECT_EQ(choices(scratch.path(), {.keep = 1}), (Reasons{{"llama-20steps", "newest"},
                                                           {"llama-10steps", "-older"},
                                                           {"llama-5steps", "a link"}}));
  expect_contains(user_error([&] { choose_for_pruning(scratch / "none", {.keep = 1}); }),
                  "cannot read '");
}

}  // namespace
}  // namespace tessera
