/* The simulator's inner loops, compiled: a schedule's table to the steps of its blocking program, and their execution.

This does what `ptdp_core/schedules/lowering.py`, `derived.py` and, in `ptdp_core/simulator/`,
`executor.py` and `steady_state.py` do in Python, where each rule is explained. Both give the same result to the
picosecond (`tests/ptdp_core/simulator/test_native.py`). What these refuse, a table that deadlocks or a time that does
not fit into 64 bits, is answered with None here, and Python says what is wrong, or goes on with its own integers.

A message has the number (boundary it crosses, plus p*v for a gradient) * m + microbatch. */

#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { F, B, I, W, KINDS };
enum { MOST_AT_ONCE = 4 };          /* MESSAGES_AT_ONCE["derived"] */
enum { MOST_MESSAGES = 1 << 28 }; /* whose numbers fit */
static const char LETTERS[] = "FBIW";
static const double LARGEST = 4e18;  /* picoseconds, below 2^63 */

/* Memory that is freed all at once. */
typedef union Block { union Block *next; max_align_t align; } Block;
typedef struct { Block *blocks; int failed; } Arena;

static void *take(Arena *arena, size_t count, size_t size) {
    Block *block = count < SIZE_MAX / (size + 1) - 64 ? calloc(1, sizeof(Block) + count * size) : NULL;
    if (block == NULL) {
        arena->failed = 1;
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    return block + 1;
}

static void release(Arena *arena) {
    while (arena->blocks != NULL) {
        Block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}

#define TAKE(arena, count, type) ((type *)take(arena, (size_t)(count) + 1, sizeof(type)))

/* A table: the passes of all ranks, rank by rank; those of rank r begin at first[r]. */
typedef struct {
    int p, m, stages;
    int *rank_of; /* by stage */
    int *first;
    unsigned char *kind;
    int *stage, *microbatch;
} Table;

/* The exchanges of all ranks, each with the passes after it; after those of a rank comes its end, an empty one.
Exchanges of rank r begin at first[r]; passes of exchange g at pass[g]; its messages at message[entry[g]], each as
2 * its number, plus 1 if it is received. */
typedef struct {
    int count, entries;
    int *first, *pass, *entry, *message;
} Groups;

/* The steps of a compiled program, in an order in which all that a step waits for comes before it; see `Events`.
An edge of a step is one of its messages: the step after which the partner comes to the exchange, and the link. */
typedef struct {
    Arena arena;
    int p, stages, steps, repeats;
    int *before, *edge_first, *partner, *link, *received, *pass_first, *pass; /* a pass is kind * stages + stage */
    int *rank_first, *rank_step;         /* the steps of each rank, in its order */
    int *first, *last, *period;          /* of each rank the stretch that repeats, if `repeats` */
} Program;

/* ---- reading what Python gives ---- */

static int read_kind(PyObject *letter) {
    Py_UCS4 character = PyUnicode_ReadChar(letter, 0);
    for (int kind = 0; kind < KINDS; kind++)
        if (character == (Py_UCS4)LETTERS[kind]) return kind;
    return -1;
}

/* Whether every number of a sequence could be read into `into`; a shorter one leaves the rest as it is. */
static int read_numbers(PyObject *sequence, int64_t *into, int most) {
    PyObject *items = PySequence_Tuple(sequence);
    if (items == NULL) return 0;
    Py_ssize_t count = PyTuple_Size(items);
    for (Py_ssize_t i = 0; i < count && i < most; i++) into[i] = PyLong_AsLongLong(PyTuple_GetItem(items, i));
    Py_DECREF(items);
    return PyErr_Occurred() == NULL;
}

static int read_table(Table *table, Arena *arena, PyObject *ranks, PyObject *rank_of) {
    int p = table->p = (int)PyTuple_Size(ranks);
    int stages = table->stages = (int)PyTuple_Size(rank_of);
    table->first = TAKE(arena, p + 1, int);
    table->rank_of = TAKE(arena, stages, int);
    if (arena->failed) return 0;
    for (int stage = 0; stage < stages; stage++)
        table->rank_of[stage] = (int)PyLong_AsLong(PyTuple_GetItem(rank_of, stage));
    for (int rank = 0; rank < p; rank++)
        table->first[rank + 1] = table->first[rank] + (int)PyTuple_Size(PyTuple_GetItem(ranks, rank));
    int passes = table->first[p];
    table->kind = TAKE(arena, passes, unsigned char);
    table->stage = TAKE(arena, passes, int);
    table->microbatch = TAKE(arena, passes, int);
    if (arena->failed) return 0;
    for (int rank = 0, i = 0; rank < p; rank++) {
        PyObject *row = PyTuple_GetItem(ranks, rank);
        for (int k = 0; i < table->first[rank + 1]; i++, k++) {
            PyObject *action = PyTuple_GetItem(row, k);
            int kind = read_kind(PyTuple_GetItem(action, 0));
            int stage = (int)PyLong_AsLong(PyTuple_GetItem(action, 1));
            int microbatch = (int)PyLong_AsLong(PyTuple_GetItem(action, 2));
            if (kind < 0 || stage < 0 || stage >= stages || microbatch < 0 || microbatch >= table->m) return 0;
            table->kind[i] = (unsigned char)kind;
            table->stage[i] = stage;
            table->microbatch[i] = microbatch;
        }
    }
    return PyErr_Occurred() == NULL;
}

/* ---- messages ---- */

/* Whether the boundary between a stage and the next one is between two ranks. */
static int crosses(const Table *table, int stage) {
    return stage >= 0 && stage < table->stages - 1 && table->rank_of[stage] != table->rank_of[stage + 1];
}

/* The number of the message that a pass makes, -1 if none. */
static int output(const Table *table, int i) {
    int stage = table->stage[i], forward = table->kind[i] == F;
    if (table->kind[i] == W || !crosses(table, forward ? stage : stage - 1)) return -1;
    return (forward ? stage : table->stages + stage - 1) * table->m + table->microbatch[i];
}

/* The number of the message that a pass waits for, -1 if none. */
static int input(const Table *table, int i) {
    int stage = table->stage[i], forward = table->kind[i] == F;
    if (table->kind[i] == W || !crosses(table, forward ? stage - 1 : stage)) return -1;
    return (forward ? stage - 1 : table->stages + stage) * table->m + table->microbatch[i];
}

/* ---- groups of messages: `lowering.blocking_groups` ---- */

static void open_group(Groups *groups, int pass) {
    groups->pass[groups->count] = pass;
    groups->entry[groups->count++] = groups->entries;
}

static void put(Groups *groups, int message, int received) {
    if (message >= 0) groups->message[groups->entries++] = 2 * message + received;
}

static void neighbours_of(const Table *table, int rank, const int *then, Groups *groups) {
    int to_send = -1, next = table->first[rank];
    open_group(groups, next);
    for (int i = next; i < table->first[rank + 1]; i++) {
        if (table->kind[i] == W) continue;
        int to_receive = input(table, i);
        if (to_send >= 0 && to_receive >= 0 && then[to_receive] == to_send) {
            open_group(groups, i);
            put(groups, to_send, 0);
            put(groups, to_receive, 1);
        } else {
            if (to_send >= 0) {
                open_group(groups, next);
                put(groups, to_send, 0);
            }
            if (to_receive >= 0) {
                open_group(groups, i);
                put(groups, to_receive, 1);
            }
        }
        to_send = output(table, i);
        next = i + 1;
    }
    if (to_send >= 0) {
        open_group(groups, next);
        put(groups, to_send, 0);
    }
    open_group(groups, table->first[rank + 1]);
}

static int neighbours(const Table *table, Arena *scratch, Groups *groups) {
    int messages = 2 * table->stages * table->m;
    int *then = TAKE(scratch, messages, int);
    if (scratch->failed) return 0;
    memset(then, -1, (size_t)messages * sizeof(int));
    for (int rank = 0; rank < table->p; rank++)
        for (int i = table->first[rank], made = -1; i < table->first[rank + 1]; i++) {
            if (table->kind[i] == W) continue;
            if (made >= 0) then[made] = input(table, i);
            made = output(table, i);
        }
    for (int rank = 0; rank < table->p; rank++) {
        groups->first[rank] = groups->count;
        neighbours_of(table, rank, then, groups);
    }
    return 1;
}

static void slots_of(const Table *table, int rank, Groups *groups) {
    const unsigned char *kind = table->kind;
    int begin = table->first[rank], end = table->first[rank + 1], steady = 0;
    for (int i = begin; i + 1 < end; i++) steady |= kind[i] == B && kind[i + 1] == F;
    open_group(groups, begin);
    int sent = begin; /* the passes from here to the slot's first send before it; none after a flush of them */
    for (int i = begin, length = 0, before = 0; i < end; i += length, before = length) {
        length = steady && kind[i] == F && i + 1 < end && kind[i + 1] == B ? 2 : 1;
        int sends = 0, receives = 0;
        for (int k = sent; k < i; k++) sends += output(table, k) >= 0;
        for (int k = i; k < i + length; k++) receives += input(table, k) >= 0;
        if (sends && receives && before == 1 && length == 1 && kind[i - 1] == F && kind[i] == B) {
            open_group(groups, i);
            for (; sent < i; sent++) put(groups, output(table, sent), 0);
            sends = 0;
        }
        if (sends || receives) {
            open_group(groups, i);
            for (int k = sent; k < i; k++) put(groups, output(table, k), 0);
            for (int k = i; k < i + length; k++) put(groups, input(table, k), 1);
        }
        sent = i;
    }
    int sends = 0;
    for (int k = sent; k < end; k++) sends += output(table, k) >= 0;
    if (sends) {
        open_group(groups, end);
        for (int k = sent; k < end; k++) put(groups, output(table, k), 0);
    }
    open_group(groups, end);
}

/* ---- groups that are derived from the table: `derived.py` ---- */

/* The table executed in units of a forward pass: when each pass starts. Returns the end, or -1 if it cannot run. */
static int run_table(const Table *table, Arena *scratch, int *start) {
    static const int LENGTH[KINDS] = {1, 2, 1, 1};
    int p = table->p, m = table->m, stages = table->stages, outputs = 2 * stages * m, ready = 0, last = 0;
    int *end = TAKE(scratch, outputs, int); /* of a pass by its output: forward * stages * m + stage * m + microbatch */
    int *waiting = TAKE(scratch, outputs, int), *following = TAKE(scratch, p, int);
    int *at = TAKE(scratch, p, int), *clock = TAKE(scratch, p, int), *stack = TAKE(scratch, p, int);
    if (scratch->failed) return -1;
    memset(end, -1, (size_t)outputs * sizeof(int));
    memset(waiting, -1, (size_t)outputs * sizeof(int));
    for (int rank = 0; rank < p; rank++) {
        at[rank] = table->first[rank];
        stack[ready++] = rank;
    }
    while (ready) {
        int rank = stack[--ready];
        for (; at[rank] < table->first[rank + 1]; at[rank]++) {
            int i = at[rank], kind = table->kind[i], stage = table->stage[i], microbatch = table->microbatch[i];
            int forward = (stages + stage) * m + microbatch, backward = stage * m + microbatch, moment = clock[rank];
            int own = kind == F ? -1 : kind == W ? backward : forward;
            int other = kind == F ? (stage ? forward - m : -1) : kind == W || stage == stages - 1 ? -1 : backward + m;
            int missing = own >= 0 && end[own] < 0 ? own : other >= 0 && end[other] < 0 ? other : -1;
            if (missing >= 0) {
                following[rank] = waiting[missing];
                waiting[missing] = rank;
                break;
            }
            if (own >= 0 && end[own] > moment) moment = end[own];
            if (other >= 0 && end[other] > moment) moment = end[other];
            start[i] = moment;
            clock[rank] = moment + LENGTH[kind];
            if (clock[rank] > last) last = clock[rank];
            if (kind == W) continue;
            int made = kind == F ? forward : backward;
            end[made] = clock[rank];
            for (int other_rank = waiting[made]; other_rank >= 0; other_rank = following[other_rank])
                stack[ready++] = other_rank;
            waiting[made] = -1;
        }
    }
    for (int rank = 0; rank < p; rank++)
        if (at[rank] < table->first[rank + 1]) return -1;
    return last;
}

/* A message to be placed: when it is used and made, in the order of its letter, and its number. */
typedef struct { int used, made, gradient, number, ranks[2]; } Placed;

static int earlier(const void *one, const void *other) {
    const Placed *a = one, *b = other;
    if (a->used != b->used) return a->used < b->used ? -1 : 1;
    if (a->made != b->made) return a->made < b->made ? -1 : 1;
    if (a->gradient != b->gradient) return a->gradient > b->gradient ? -1 : 1; /* "B" sorts before "F" */
    return a->number < b->number ? -1 : a->number > b->number;
}

/* By rank and moment: the messages of the group there, and the start of the pass (a B) in whose midst it is. */
typedef struct { int moments; unsigned char *room; int *inside; } Moments;

static int moment_of(const Moments *at, const Placed *message) {
    const unsigned char *room[2];
    const int *inside[2];
    for (int end = 0; end < 2; end++) {
        room[end] = at->room + (size_t)message->ranks[end] * at->moments;
        inside[end] = at->inside + (size_t)message->ranks[end] * at->moments;
    }
    for (int moment = message->used; moment >= message->made; moment--)
        if ((room[0][moment] || room[1][moment]) && room[0][moment] < MOST_AT_ONCE && room[1][moment] < MOST_AT_ONCE &&
            inside[0][moment] < 0 && inside[1][moment] < 0)
            return moment;
    int best = message->used, shortest = -1;
    for (int moment = message->used; moment >= message->made;) {
        int wait = 0, start = moment, within = 0;
        for (int end = 0; end < 2; end++)
            if (inside[end][moment] >= 0) {
                int begun = inside[end][moment];
                if (begun + 2 - moment > wait) wait = begun + 2 - moment;
                if (!within || begun < start) start = begun;
                within = 1;
            }
        if (shortest < 0 || wait < shortest) best = moment, shortest = wait;
        if (!within) break;
        moment = start;
    }
    return best;
}

static int derived(const Table *table, Arena *scratch, Groups *groups) {
    int p = table->p, passes = table->first[p], count = 0, messages = 2 * table->stages * table->m;
    int *start = TAKE(scratch, passes, int), *made = TAKE(scratch, messages, int), *rank_by = TAKE(scratch, messages, int);
    if (scratch->failed) return 0;
    int end = run_table(table, scratch, start);
    if (end < 0) return 0;
    Moments at = {end + 1, TAKE(scratch, (size_t)p * (end + 1), unsigned char), TAKE(scratch, (size_t)p * (end + 1), int)};
    Placed *placed = TAKE(scratch, passes, Placed);
    if (scratch->failed) return 0;
    memset(at.inside, -1, (size_t)p * at.moments * sizeof(int));
    memset(made, -1, (size_t)messages * sizeof(int));
    for (int rank = 0; rank < p; rank++)
        for (int i = table->first[rank]; i < table->first[rank + 1]; i++) {
            if (table->kind[i] == B) at.inside[(size_t)rank * at.moments + start[i] + 1] = start[i];
            int message = output(table, i);
            if (message < 0) continue;
            made[message] = start[i] + (table->kind[i] == B ? 2 : 1);
            rank_by[message] = rank;
        }
    for (int rank = 0; rank < p; rank++)
        for (int i = table->first[rank]; i < table->first[rank + 1]; i++) {
            int message = input(table, i);
            if (message < 0) continue;
            if (made[message] < 0) return 0;
            placed[count++] = (Placed){start[i], made[message], table->kind[i] != F, message, {rank_by[message], rank}};
        }
    qsort(placed, (size_t)count, sizeof(Placed), earlier);
    /* Of each rank the messages by their moments: a counting sort, stable in the order in which they were placed. */
    int *moment = TAKE(scratch, count, int), *from = TAKE(scratch, (size_t)p * at.moments, int);
    int *sorted = TAKE(scratch, 2 * (size_t)count, int);
    if (scratch->failed) return 0;
    for (int k = 0; k < count; k++) {
        moment[k] = moment_of(&at, &placed[k]);
        for (int side = 0; side < 2; side++) at.room[(size_t)placed[k].ranks[side] * at.moments + moment[k]]++;
    }
    for (size_t cell = 1; cell < (size_t)p * at.moments; cell++) from[cell] = from[cell - 1] + at.room[cell - 1];
    for (int k = 0; k < count; k++)
        for (int side = 0; side < 2; side++)
            sorted[from[(size_t)placed[k].ranks[side] * at.moments + moment[k]]++] = 2 * placed[k].number + side;
    for (int rank = 0, next = 0; rank < p; rank++) {
        int i = table->first[rank];
        groups->first[rank] = groups->count;
        open_group(groups, i);
        for (int now = 0; now < at.moments; now++) {
            int size = at.room[(size_t)rank * at.moments + now];
            if (!size) continue;
            while (i < table->first[rank + 1] && start[i] < now) i++;
            open_group(groups, i);
            for (; size; size--, next++) put(groups, sorted[next] / 2, sorted[next] % 2);
        }
        open_group(groups, table->first[rank + 1]);
    }
    return 1;
}

/* ---- from groups to steps: `executor.compile_blocking` ---- */

/* The partner of each message of each group. Returns whether all have one. */
static int partners(const Table *table, Arena *scratch, Groups *groups, int *partner) {
    int messages = 2 * table->stages * table->m;
    int *sides = TAKE(scratch, 2 * (size_t)messages, int);
    if (scratch->failed) return 0;
    memset(sides, -1, 2 * (size_t)messages * sizeof(int));
    for (int g = 0; g < groups->count; g++) {
        int *first = groups->message + groups->entry[g], *last = groups->message + groups->entry[g + 1];
        for (int *a = first; a < last; a++) /* by number, so that exchanges one period apart are alike */
            for (int *b = a; b > first && b[-1] > b[0]; b--) {
                int other = b[0];
                b[0] = b[-1];
                b[-1] = other;
            }
        for (int *a = first; a < last; a++) sides[*a] = g;
    }
    for (int e = 0; e < groups->entries; e++)
        if ((partner[e] = sides[groups->message[e] ^ 1]) < 0) return 0;
    return 1;
}

/* An order of the groups in which each comes after the arrival of its partners; by group the step before it on its rank,
1 + its place there, 0 at first. Returns whether all ranks came to their end. */
static int in_order(const Groups *groups, int p, Arena *scratch, const int *partner, int *order, int *arrived) {
    int *waiting = TAKE(scratch, groups->count, int), *following = TAKE(scratch, p, int);
    int *at = TAKE(scratch, p, int), *stack = TAKE(scratch, p, int), ready = 0, done = 0;
    if (scratch->failed) return 0;
    memset(waiting, -1, (size_t)groups->count * sizeof(int));
    memset(arrived, -1, (size_t)groups->count * sizeof(int));
    for (int rank = 0; rank < p; rank++) {
        at[rank] = groups->first[rank];
        arrived[at[rank]] = 0;
        stack[ready++] = rank;
    }
    while (ready) {
        int rank = stack[--ready], end = groups->first[rank + 1] - 1;
        while (at[rank] < end) {
            int g = at[rank], missing = -1;
            for (int e = groups->entry[g]; e < groups->entry[g + 1] && missing < 0; e++)
                if (arrived[partner[e]] < 0) missing = partner[e];
            if (missing >= 0) {
                following[rank] = waiting[missing];
                waiting[missing] = rank;
                break;
            }
            order[done] = g;
            arrived[++at[rank]] = ++done;
            for (int other = waiting[at[rank]]; other >= 0; other = following[other]) stack[ready++] = other;
            waiting[at[rank]] = -1;
        }
    }
    return done == groups->count - p;
}

static int steps_of(Program *program, const Table *table, const Groups *groups, Arena *scratch) {
    int steps = groups->count - table->p, entries = groups->entries, passes = table->first[table->p];
    int *partner = TAKE(scratch, entries, int), *order = TAKE(scratch, steps, int);
    int *arrived = TAKE(scratch, groups->count, int), *sends = TAKE(scratch, groups->count, int);
    Arena *arena = &program->arena;
    program->p = table->p, program->stages = table->stages, program->steps = steps;
    program->before = TAKE(arena, steps + 1, int), program->edge_first = TAKE(arena, steps + 2, int);
    program->partner = TAKE(arena, entries, int), program->link = TAKE(arena, entries, int);
    program->received = TAKE(arena, steps + 1, int), program->pass_first = TAKE(arena, steps + 2, int);
    program->pass = TAKE(arena, passes, int);
    program->rank_first = TAKE(arena, table->p + 1, int), program->rank_step = TAKE(arena, steps, int);
    if (scratch->failed || arena->failed) return 0;
    if (!partners(table, scratch, (Groups *)groups, partner)) return 0;
    if (!in_order(groups, table->p, scratch, partner, order, arrived)) return 0;
    for (int g = 0; g < groups->count; g++)
        for (int e = groups->entry[g]; e < groups->entry[g + 1]; e++) sends[g] += groups->message[e] % 2 == 0;
    int edge = 0, pass = 0;
    for (int step = 1; step <= steps; step++) {
        int g = order[step - 1], size = groups->entry[g + 1] - groups->entry[g];
        program->before[step] = arrived[g];
        program->received[step] = size - sends[g];
        for (int e = groups->entry[g]; e < groups->entry[g + 1]; e++, edge++) {
            int other = partner[e], received = groups->message[e] % 2, sender = received ? other : g;
            int receiver = received ? g : other;
            int receives = groups->entry[receiver + 1] - groups->entry[receiver] - sends[receiver];
            int boundary = groups->message[e] / 2 / table->m % table->stages;
            program->partner[edge] = arrived[other];
            program->link[edge] = boundary + (sends[sender] > 1 || receives > 1 ? table->stages : 0);
        }
        for (int i = groups->pass[g]; i < groups->pass[g + 1]; i++)
            program->pass[pass++] = table->kind[i] * table->stages + table->stage[i];
        program->edge_first[step + 1] = edge;
        program->pass_first[step + 1] = pass;
    }
    for (int rank = 0, k = 0; rank < table->p; rank++) {
        for (int g = groups->first[rank]; g < groups->first[rank + 1] - 1; g++) program->rank_step[k++] = arrived[g + 1];
        program->rank_first[rank + 1] = k;
    }
    return 1;
}

/* ---- the periodic steady state: `steady_state.py` ---- */

/* The number of a rank's steps in the middle for q of m microbatches, by the steps' passes; 0 for a small m. */
static int period_of(const Program *program, const int *steps, int count, int m, int q) {
    int64_t total = 0;
    for (int i = 0; i < count; i++) total += program->pass_first[steps[i] + 1] - program->pass_first[steps[i]];
    int64_t length = q * total / m, middle = total > length ? (total - length) / 2 : 0, start = 0;
    int first = 0, last = 0;
    if (middle + length >= total) return 0;
    for (int i = 0; i < count; i++) {
        if (start < middle) first = i + 1;
        if (start < middle + length) last = i + 1;
        start += program->pass_first[steps[i] + 1] - program->pass_first[steps[i]];
    }
    return last - first;
}

/* Whether a step's counterpart one period later has the same passes and messages, with partners that are counterparts. */
static int has_counterpart(const Program *program, const int *later, int step) {
    int other = later[step];
    if (other < 0 || later[program->before[step]] != program->before[other]) return 0;
    int e = program->edge_first[step], f = program->edge_first[other], edges = program->edge_first[step + 1] - e;
    int i = program->pass_first[step], j = program->pass_first[other], passes = program->pass_first[step + 1] - i;
    if (program->received[step] != program->received[other] || program->edge_first[other + 1] - f != edges ||
        program->pass_first[other + 1] - j != passes ||
        memcmp(program->pass + i, program->pass + j, (size_t)passes * sizeof(int)) ||
        memcmp(program->link + e, program->link + f, (size_t)edges * sizeof(int)))
        return 0;
    for (int k = 0; k < edges; k++)
        if (later[program->partner[e + k]] != program->partner[f + k]) return 0;
    return 1;
}

static int stretches(Program *program, Arena *scratch, int m, int q) {
    int p = program->p, *later = TAKE(scratch, program->steps + 1, int);
    program->first = TAKE(&program->arena, p, int), program->last = TAKE(&program->arena, p, int);
    program->period = TAKE(&program->arena, p, int);
    if (scratch->failed || program->arena.failed) return 0;
    memset(later, -1, (size_t)(program->steps + 1) * sizeof(int));
    for (int rank = 0; rank < p; rank++) {
        const int *steps = program->rank_step + program->rank_first[rank];
        int count = program->rank_first[rank + 1] - program->rank_first[rank];
        int period = program->period[rank] = period_of(program, steps, count, m, q);
        if (!period) return 1;
        for (int i = 0; i + period < count; i++) later[steps[i]] = steps[i + period];
    }
    for (int rank = 0; rank < p; rank++) {
        const int *steps = program->rank_step + program->rank_first[rank];
        int count = program->rank_first[rank + 1] - program->rank_first[rank];
        int first = count / 2 - program->period[rank] / 2, after = first;
        if (!has_counterpart(program, later, steps[first])) return 1;
        while (first > 0 && has_counterpart(program, later, steps[first - 1])) first--;
        while (has_counterpart(program, later, steps[after])) after++;
        program->first[rank] = first;
        program->last[rank] = after - 1 + program->period[rank];
    }
    program->repeats = 1;
    return 1;
}

/* ---- what Python calls ---- */

static const char NAME[] = "ptdp program";

static void free_program(PyObject *capsule) {
    Program *program = PyCapsule_GetPointer(capsule, NAME);
    release(&program->arena);
    free(program);
}

static int lower(const Table *table, Arena *scratch, const char *exchanges, Groups *groups) {
    size_t most = 2 * (size_t)table->first[table->p] + 3 * (size_t)table->p;
    groups->first = TAKE(scratch, table->p + 1, int), groups->pass = TAKE(scratch, most + 1, int);
    groups->entry = TAKE(scratch, most + 1, int), groups->message = TAKE(scratch, most, int);
    if (scratch->failed) return 0;
    int lowered = 1;
    if (!strcmp(exchanges, "derived")) {
        lowered = derived(table, scratch, groups);
    } else if (!strcmp(exchanges, "slots")) {
        for (int rank = 0; rank < table->p; rank++) {
            groups->first[rank] = groups->count;
            slots_of(table, rank, groups);
        }
    } else {
        lowered = neighbours(table, scratch, groups);
    }
    groups->first[table->p] = groups->count;
    groups->pass[groups->count] = table->first[table->p];
    groups->entry[groups->count] = groups->entries;
    return lowered;
}

static PyObject *native_compile(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *ranks, *rank_of;
    const char *exchanges;
    int m, q;
    if (!PyArg_ParseTuple(arguments, "O!O!isi", &PyTuple_Type, &ranks, &PyTuple_Type, &rank_of, &m, &exchanges, &q))
        return NULL;
    Arena scratch = {NULL, 0};
    Table table = {.m = m};
    Groups groups = {0};
    PyObject *compiled = NULL;
    Program *program = calloc(1, sizeof(Program));
    if (program == NULL) return PyErr_NoMemory();
    int works = (int64_t)PyTuple_Size(rank_of) * m < MOST_MESSAGES && read_table(&table, &scratch, ranks, rank_of) &&
                lower(&table, &scratch, exchanges, &groups) && steps_of(program, &table, &groups, &scratch) && (!q || stretches(program, &scratch, m, q));
    if (works) {
        compiled = PyCapsule_New(program, NAME, free_program);
        if (compiled != NULL) program = NULL; /* the capsule's now */
    }
    release(&scratch);
    if (program != NULL) {
        release(&program->arena);
        free(program);
    }
    if (compiled == NULL && !PyErr_Occurred()) Py_RETURN_NONE;
    return compiled;
}

/* When each step ends, and how long its exchange takes if every peer is ready. Returns whether the times fit. */
static int run(const Program *program, const int64_t *times, const int64_t *wire, int64_t gather, int64_t exchange,
               int64_t *done, int64_t *duration) {
    double total = 0;
    for (int step = 1; step <= program->steps; step++) {
        int64_t longest = 0, computing = 0, end = done[program->before[step]];
        int first = program->edge_first[step], last = program->edge_first[step + 1];
        for (int e = first; e < last; e++)
            if (wire[program->link[e]] > longest) longest = wire[program->link[e]];
        end += longest;
        for (int e = first; e < last; e++) {
            int64_t with = done[program->partner[e]] + wire[program->link[e]];
            if (with > end) end = with;
        }
        for (int i = program->pass_first[step]; i < program->pass_first[step + 1]; i++)
            computing += times[program->pass[i]];
        int64_t posting = last > first ? exchange + program->received[step] * gather : 0;
        duration[step] = longest + posting;
        done[step] = end + posting + computing;
        total += (double)duration[step] + (double)computing;
        if (total > LARGEST) return 0;
    }
    return 1;
}

/* Whether the batch has settled into a period, whose length is then put into `shift`; see `steady_state.py`. */
static int settles(const Program *program, const int64_t *done, int64_t *shift) {
    const int *before = program->before;
    int64_t moment = INT64_MAX;
    int known = 0;
    if (!program->repeats) return 0;
    for (int rank = 0; rank < program->p; rank++) {
        int64_t arrival = done[before[program->rank_step[program->rank_first[rank] + program->last[rank]]]];
        if (arrival < moment) moment = arrival;
    }
    for (int rank = 0; rank < program->p; rank++) {
        const int *steps = program->rank_step + program->rank_first[rank];
        int low = 0, high = program->rank_first[rank + 1] - program->rank_first[rank];
        while (low < high) {
            int middle = low + (high - low) / 2;
            if (done[before[steps[middle]]] < moment) low = middle + 1;
            else high = middle;
        }
        int last = low - 1;
        if (last - program->period[rank] < program->first[rank]) return 0;
        int step = steps[last - program->period[rank]], later = steps[last];
        int e = program->edge_first[step], f = program->edge_first[later], edges = program->edge_first[later + 1] - f;
        for (int k = -1; k < edges; k++) {
            int64_t here = done[k < 0 ? before[later] : program->partner[f + k]];
            if (here >= moment) continue;
            int64_t difference = here - done[k < 0 ? before[step] : program->partner[e + k]];
            if (known && difference != *shift) return 0;
            *shift = difference;
            known = 1;
        }
    }
    return known;
}

static PyObject *numbers(const int64_t *values, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

/* The end of each rank, its exchanges' time, that of a period, and the length of a period or None. */
static PyObject *results(const Program *program, Arena *scratch, const int64_t *done, const int64_t *duration) {
    int p = program->p;
    int64_t *ends = TAKE(scratch, p, int64_t), *exchanging = TAKE(scratch, p, int64_t);
    int64_t *repeated = TAKE(scratch, p, int64_t), shift = 0;
    if (scratch->failed) return PyErr_NoMemory();
    for (int rank = 0; rank < p; rank++) {
        const int *steps = program->rank_step + program->rank_first[rank];
        int count = program->rank_first[rank + 1] - program->rank_first[rank];
        ends[rank] = done[steps[count - 1]];
        for (int i = 0; i < count; i++) exchanging[rank] += duration[steps[i]];
        for (int i = 0; program->repeats && i < program->period[rank]; i++)
            repeated[rank] += duration[steps[program->first[rank] + i]];
    }
    int settled = settles(program, done, &shift);
    PyObject *length = settled ? PyLong_FromLongLong(shift) : Py_NewRef(Py_None);
    return Py_BuildValue("(NNNN)", numbers(ends, p), numbers(exchanging, p), numbers(repeated, p), length);
}

static PyObject *native_execute(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *capsule, *forward, *backward, *weights, *alone, *shared;
    long long gather, exchange;
    if (!PyArg_ParseTuple(arguments, "OOOOOOLL", &capsule, &forward, &backward, &weights, &alone, &shared, &gather,
                          &exchange))
        return NULL;
    const Program *program = PyCapsule_GetPointer(capsule, NAME);
    if (program == NULL) return NULL;
    int stages = program->stages;
    Arena scratch = {NULL, 0};
    int64_t *times = TAKE(&scratch, KINDS * stages, int64_t), *wire = TAKE(&scratch, 2 * stages, int64_t);
    int64_t *done = TAKE(&scratch, program->steps, int64_t), *duration = TAKE(&scratch, program->steps, int64_t);
    PyObject *answer = NULL;
    if (scratch.failed) {
        PyErr_NoMemory();
    } else if (read_numbers(forward, times + F * stages, stages) && read_numbers(backward, times + B * stages, stages) &&
               read_numbers(weights, times + W * stages, stages) && read_numbers(alone, wire, stages) &&
               read_numbers(shared, wire + stages, stages)) {
        for (int stage = 0; stage < stages; stage++)
            times[I * stages + stage] = times[B * stages + stage] - times[W * stages + stage];
        int fits = run(program, times, wire, gather, exchange, done, duration);
        answer = fits ? results(program, &scratch, done, duration) : Py_NewRef(Py_None);
    }
    release(&scratch);
    return answer;
}

static PyMethodDef METHODS[] = {
    {"compile", native_compile, METH_VARARGS,
     "compile(ranks, rank_of, m, exchanges, q): a table's program, or None"},
    {"execute", native_execute, METH_VARARGS,
     "execute(program, forward, backward, weights, alone, shared, gather, exchange): ends, exchanging, of a period, its "
     "length; or None"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_ptdp_native", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__ptdp_native(void) { return PyModule_Create(&MODULE); }
