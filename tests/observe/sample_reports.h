#pragma once
#include "observe/reports.h"

namespace tessera {

inline StepReport sample_report() {
  StepReport r;
  r.batch = 12;
  r.loss = 8.123456;
  r.samples = 8;
  r.tokens = 2048;
  r.step_seconds = 2.5;
  r.data_seconds = 0.001;
  r.epoch = 2;
  r.tokens_seen = 26624;
  r.learning_rate = 2e-4;
  r.next_learning_rate = 1e-4;
  r.gradient_norm = 1.23456;
  return r;
}

}  // namespace tessera
