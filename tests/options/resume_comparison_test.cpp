#include "options/resume_comparison.h"

#include <set>

#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

// A row is obeyed by a run if it works and `tessera train` takes it.
TEST(ResumeComparison, EveryOptionThatARunObeysSaysWhatAChangeMeans) {
  for (const OptionRow& row : option_table()) {
    bool obeyed = row.status == OptionStatus::kWorks && (row.scopes & in(OptionScope::kTrain));
    EXPECT_EQ(row.on_resume != OnResume::kUnsaid, obeyed) << row.name;
  }
}

RunRecord plain_record() {
  RunRecord record;
  record.tokenizer = {"byte", 1};
  record.training_text = {100, 7};
  record.data_ranks = 2;
  const RunConfig defaults;
  record.model.resid_pdrop = defaults.resid_pdrop;
  record.model.embd_pdrop = defaults.embd_pdrop;
  record.model.attn_pdrop = defaults.attn_pdrop;
  record.schedule = {.start_lr = 1e-4, .min_lr = 1e-5, .warmup_iter = 16, .end_iter = 5000};
  return record;
}

TEST(ResumeComparison, NothingChangedIsNothingSaid) {
  RunRecord record = plain_record();
  EXPECT_TRUE(changed_options(record, record).empty());
  EXPECT_TRUE(ignored_options(record, record).empty());
  EXPECT_EQ(changed_text(record, record), "");
}

TEST(ResumeComparison, EveryChangeOfWhatIsComputedIsNamedWithBothValues) {
  const RunRecord saved = plain_record();
  for (const OptionRow& row : option_table()) {
    std::string other = other_value(row);
    if (other.empty()) continue;
    RunRecord now = saved;
    set_option(now.options, row, {other}, row.name);
    // Dropout counts as the model has it, which a description may say.
    now.model.resid_pdrop = now.options.resid_pdrop;
    now.model.embd_pdrop = now.options.embd_pdrop;
    now.model.attn_pdrop = now.options.attn_pdrop;
    std::vector<std::string> expected;
    if (row.on_resume == OnResume::kWarned) {
      expected.push_back(cat("--", row.name, " was ", value_text(saved.options, row), " and is ",
                             value_text(now.options, row)));
    }
    EXPECT_EQ(changed_options(saved, now), expected) << row.name;
  }
  // What people change.
  for (std::string_view option :
       {"train_batch_size", "gradient_accumulation_steps", "beta1", "beta2", "weight_decay",
        "grad_clip", "bf16", "use_fp16", "seed", "max_context_width", "z_loss", "document_mask"})
    EXPECT_EQ(find_option(option)->on_resume, OnResume::kWarned) << option;
  RunRecord now = saved;
  now.data_ranks = 4;
  EXPECT_EQ(changed_options(saved, now),
            std::vector<std::string>{"the ranks that share a step's windows were 2 and are 4"});
}

// Unless dropout depends on the place of a window on its rank.
TEST(ResumeComparison, TheSameWindowsSpreadAnewAreNothingToSay) {
  RunRecord saved = plain_record();
  saved.options.train_batch_size = 2;
  RunRecord now = saved;
  now.data_ranks = 1;
  now.options.train_batch_size = 1;
  now.options.gradient_accumulation_steps = 4;
  EXPECT_TRUE(changed_options(saved, now).empty());
  now.options.gradient_accumulation_steps = 2;
  EXPECT_EQ(changed_options(saved, now).size(), 3u);
  now.options.gradient_accumulation_steps = 4;
  saved.options.same_seed = now.options.same_seed = true;
  EXPECT_EQ(changed_options(saved, now).size(), 3u);
}

TEST(ResumeComparison, RatesThatTheCheckpointOverridesAreSaid) {
  const RunRecord saved = plain_record();
  auto said = [&](auto change) {
    RunRecord now = saved;
    now.options.warmup = 16.0 / 5000;
    change(now);
    return ignored_options(saved, now);
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(said([](RunRecord& r) { r.schedule.start_lr = 0.5; }),
            Lines{"--lr 0.5: the checkpoint has 1e-04"});
  EXPECT_EQ(said([](RunRecord& r) { r.schedule.min_lr = 0; }),
            Lines{"--min_lr 0: the checkpoint has 1e-05"});
  EXPECT_EQ(said([](RunRecord& r) { r.options.warmup = 0.5; }),
            Lines{"--warmup 0.5: the checkpoint has 0.0032"});
  EXPECT_EQ(said([](RunRecord& r) { r.schedule.decay_style = DecayStyle::kLinear; }),
            Lines{"--lr_decay_style linear: the checkpoint has cosine"});
  // What only other curves have says nothing.
  EXPECT_EQ(said([](RunRecord& r) { r.schedule.plateau = r.schedule.gamma = 0.5; }), Lines{});
  RunRecord held = saved, stepped = saved;
  held.schedule.decay_style = DecayStyle::kPlateau;
  held.schedule.plateau = 0.8;
  stepped.schedule.decay_style = DecayStyle::kStep;
  stepped.schedule.min_lr = stepped.schedule.warmup_iter = 0;
  auto without = [](RunRecord now) {
    now.schedule.plateau = 0;
    now.schedule.gamma = 0.5;
    now.options.warmup = 16.0 / 5000;
    return now;
  };
  EXPECT_EQ(ignored_options(held, without(held)), Lines{"--plateau 0: the checkpoint has 0.8"});
  EXPECT_EQ(ignored_options(stepped, without(stepped)),
            Lines{"--step_lr_gamma 0.5: the checkpoint has 0.1"});
  auto longer = [](RunRecord& r) { r.schedule.end_iter = 6000; };
  EXPECT_EQ(said(longer),
            Lines{"--max_steps as the length of the schedule 6000: the checkpoint has 5000"});
  EXPECT_EQ(said([&](RunRecord& r) {
              longer(r);
              r.options.lr_decay_iters = 6000;
            }),
            Lines{"--lr_decay_iters 6000: the checkpoint has 5000"});
  std::set<std::string_view> overridden;
  for (const OptionRow& row : option_table()) {
    if (row.on_resume == OnResume::kOverridden) overridden.insert(row.name);
  }
  EXPECT_EQ(overridden,
            (std::set<std::string_view>{"lr", "lr_decay_iters", "lr_decay_style", "min_lr",
                                        "plateau", "step_lr_gamma", "warmup"}));
}

TEST(ResumeComparison, TextCountsByItsContent) {
  RunRecord saved = plain_record(), now = saved;
  now.options.dataset = "elsewhere/copy.txt";
  EXPECT_EQ(changed_text(saved, now), "");
  now.training_text->tokens = 90;
  EXPECT_EQ(
      changed_text(saved, now),
      "--dataset was c4 and is elsewhere/copy.txt: 100 training tokens there, 90 in this run");
  now = saved;
  now.training_text->hash = 8;
  EXPECT_EQ(changed_text(saved, now),
            "the files of --dataset have changed: as many training tokens, 100, but others");
  now.options.validation_fraction = 0.5;
  expect_contains(changed_text(saved, now), "--validation_fraction was 0.01 and is 0.5");
}

// Of a checkpoint that says nothing of contents only names can be compared.
TEST(ResumeComparison, OldCheckpointsAreComparedByName) {
  RunRecord saved = plain_record(), now = saved;
  saved.tokenizer.reset();
  saved.training_text.reset();
  saved.data_ranks.reset();
  EXPECT_TRUE(changed_options(saved, now).empty());
  EXPECT_EQ(changed_text(saved, now), "");
  now.options.tokenizer = "other.json";
  now.options.dataset = "other.txt";
  EXPECT_EQ(changed_options(saved, now),
            std::vector<std::string>{"--tokenizer was EleutherAI/gpt-neox-20b and is other.json"});
  EXPECT_EQ(changed_text(saved, now), "--dataset was c4 and is other.txt");
}

}  // namespace
}  // namespace tessera
