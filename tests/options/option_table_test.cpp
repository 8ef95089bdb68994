#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "base/file.h"
#include "optim/schedule.h"
#include "options/option_record.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

TEST(OptionTable, EveryRowIsCompleteAndSetsItsOwnField) {
  std::set<std::string> names;
  for (const OptionRow& row : option_table()) {
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_FALSE(row.group.empty()) << row.name;
    EXPECT_NE(row.scopes, 0u) << row.name;
    EXPECT_EQ(row.reason.empty(), row.status != OptionStatus::kNoEffect) << row.name;
    EXPECT_EQ(find_option(row.name), &row);
    for (std::string_view alias : row.aliases) EXPECT_EQ(find_option(alias), &row) << alias;
    for (const OptionBundle& bundle : option_bundles())
      EXPECT_EQ(find_option(bundle.name), nullptr);
    // The default passes its own rules, and another value changes exactly this field.
    RunConfig config;
    set_option(config, row, {value_text(config, row)}, row.name);
    EXPECT_EQ(config, RunConfig{}) << row.name;
    std::string other = other_value(row);
    if (other.empty()) continue;
    set_option(config, row, {other}, row.name);
    EXPECT_EQ(value_text(config, row), other) << row.name;
    for (const OptionRow& rest : option_table()) {
      if (&rest == &row) continue;
      EXPECT_EQ(value_text(config, rest), value_text(RunConfig{}, rest))
          << row.name << " " << rest.name;
    }
  }
}

// A member of RunConfig without a row would leave a hole that is wider than padding.
TEST(OptionTable, EveryMemberOfRunConfigHasARow) {
  const RunConfig config;
  auto begin = reinterpret_cast<uintptr_t>(&config);
  std::map<uintptr_t, size_t> fields;
  for (const OptionRow& row : option_table()) {
    std::visit(
        [&](auto field) {
          auto place = reinterpret_cast<uintptr_t>(&(config.*field)) - begin;
          EXPECT_TRUE(fields.emplace(place, sizeof(config.*field)).second) << row.name;
        },
        row.field);
  }
  fields.emplace(sizeof config, 0);
  size_t end = 0;
  for (auto [place, size] : fields) {
    EXPECT_LT(place - end, alignof(RunConfig)) << "no row for the member at byte " << end;
    end = place + size;
  }
}

TEST(OptionTable, HelpNamesEveryOptionOfItsCommandAndNoOther) {
  for (int i = 0; i <= static_cast<int>(kLastScope); ++i) {
    auto scope = static_cast<OptionScope>(i);
    std::string help = option_help(scope);
    for (const OptionRow& row : option_table()) {
      bool shown = help.find(cat("  --", row.name, " ")) != std::string::npos;
      EXPECT_EQ(shown, (row.scopes & in(scope)) != 0) << row.name << " in " << name(scope);
    }
    for (std::string_view line : split(help, '\n')) EXPECT_LE(line.size(), 130u) << line;
  }
  expect_lacks(option_help(OptionScope::kDiff), "--betas");
  for (const char* word : {"WARMUP", "--warmup"}) {
    std::string found = option_help(OptionScope::kTrain, word);
    expect_contains(found, "--warmup ");
    expect_lacks(found, "--dataset ");
  }
  expect_contains(option_help(OptionScope::kPlan, "shard-degree"), "--shard_degree ");
  EXPECT_THROW(option_help(OptionScope::kTrain, "nothing like it"), UsageError);
}

TEST(OptionTable, ScheduleStylesAreTheEnumeration) {
  for (const OptionValue& value : find_option("lr_decay_style")->values) {
    EXPECT_EQ(name(decay_style_from_name(value.name)), value.name);
  }
  EXPECT_EQ(find_option("lr_decay_style")->values.size(),
            static_cast<size_t>(DecayStyle::kStep) + 1);
}

TEST(OptionTable, CommittedDocumentationIsThatOfTheTable) {
  auto path = std::string(TESSERA_SOURCE_DIR) + "/docs/options.md";
  if (std::getenv("TESSERA_UPDATE_DOCS")) write_file_atomic(path, options_markdown());
  EXPECT_EQ(read_file(path), options_markdown())
      << "run this test with TESSERA_UPDATE_DOCS=1 and commit docs/options.md";
}

TEST(OptionRecord, RoundTripsEveryRow) {
  EXPECT_EQ(run_config_from_json(run_config_json(RunConfig{})), RunConfig{});
  RunConfig all;
  for (const OptionRow& row : option_table()) {
    RunConfig one;
    std::string other = other_value(row);
    if (other.empty()) continue;
    set_option(one, row, {other}, row.name);
    set_option(all, row, {other}, row.name);
    EXPECT_EQ(run_config_from_json(run_config_json(one)), one) << row.name;
  }
  EXPECT_EQ(run_config_from_json(run_config_json(all)), all);
}

TEST(OptionRecord, RoundTripsAwkwardValues) {
  RunConfig c;
  c.seed = std::numeric_limits<int64_t>::max();
  c.memory = (int64_t{1} << 53) + 1;
  c.lr = 0.1 + 0.2;
  c.min_lr = 5e-324;
  c.grad_clip = std::numeric_limits<double>::infinity();
  c.best_val_loss = -std::numeric_limits<double>::infinity();
  c.prompt = " \"None\" \n\t'quoted' \xc3\xa9";
  c.checkpoint_dir = {"None"};
  c.tensorboard_dir = {"", "None", "a b"};
  EXPECT_EQ(run_config_from_json(run_config_json(c)), c);
}

TEST(OptionRecord, RefusesDamage) {
  auto error = [](const std::string& text) {
    return user_error([&] { run_config_from_json(text); });
  };
  expect_contains(error(""), "not a JSON object");
  expect_contains(error("[1]"), "not a JSON object");
  expect_contains(error(std::string(2 << 20, ' ')), "larger than 1 MiB");
  expect_contains(error(R"({"max_stepz": 1})"), "unknown option 'max_stepz'");
  expect_contains(error(R"({"batch_size": 1})"), "unknown option 'batch_size'");  // an alias
  expect_contains(error(R"({"max_steps": -1})"),
                  "option record: max_steps expects a value of at least 0");
  expect_contains(error(R"({"max_steps": "x"})"), "option record: max_steps expects an integer");
  expect_contains(error(R"({"max_steps": null})"), "max_steps expects a number");
  expect_contains(error(R"({"bf16": 1})"), "bf16 expects true or false");
  expect_contains(error(R"({"dataset": 1})"), "dataset expects a string");
  expect_contains(error(R"({"tensorboard_dir": [1]})"),
                  "tensorboard_dir expects a list of strings");
  expect_contains(error(R"({"lr_decay_style": "x"})"), "lr_decay_style expects one of");
  EXPECT_EQ(run_config_from_json(R"({"max_steps": 3})").max_steps, 3);
}

}  // namespace
}  // namespace tessera
