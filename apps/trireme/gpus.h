#pragma once

namespace trireme::app {
// CUDA devices that PyTorch finds here; 0 without CUDA.
int gpu_count();
}  // namespace trireme::app
