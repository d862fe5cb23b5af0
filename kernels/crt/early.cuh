// Programmatic dependent launch: a launch may begin, its blocks in place, while the one before it on the stream ends.

#pragma once

// Wait until the launch before this one has ended and what it wrote can be read; then let the next one begin, once all
// blocks of this one have. Every launch of a run calls this first, one without work too: as the next waits for this one
// alone, everything before has then ended as well, and nothing is overwritten that somebody still reads.
__device__ __forceinline__ void wait_for_predecessor() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
